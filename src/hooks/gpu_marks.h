/*
 * GPU marks: detect whether a stream of another program has reached a place, without waiting for
 * it. A mark is a slot with a beginning and an end, queued behind the work of the stream.
 *
 * Event marks query the driver, which gives the seconds between both ends. For memory marks the GPU
 * writes a number into this process's memory, which can be read without the driver; the time is
 * that of the read. The driver's library is opened at run time: libcuda.so.1, or the path in
 * $ERGON_LIBCUDA. Facts of the interface: CUDA Driver API reference, "Event Management" and "Stream
 * Memory Operations".
 */
#ifndef ERG_HOOKS_GPU_MARKS_H
#define ERG_HOOKS_GPU_MARKS_H

#include "ergon/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ERG_GPU_MARKS = 256 }; /* slots */

enum erg_gpu_mark_side { ERG_MARK_BEGIN, ERG_MARK_END };

struct erg_gpu_marks;

/*
 * ERG_NO_DEVICE if there is no driver, or if it lacks a needed function. Does not access a GPU yet.
 */
int erg_gpu_marks_open(struct erg_gpu_marks **marks, bool memory, struct erg_error *err);
void erg_gpu_marks_close(struct erg_gpu_marks *marks); /* NULL is fine */

/* Adopts the calling thread's current context and creates the slots, once. */
int erg_gpu_marks_prepare(struct erg_gpu_marks *marks, struct erg_error *err);

/* Whether the stream is being captured into a graph, where events carry no times. */
bool erg_gpu_marks_captures(struct erg_gpu_marks *marks, void *stream);

/* Queues one side of a slot; `round` distinguishes its uses and is never 0. */
int erg_gpu_marks_record(struct erg_gpu_marks *marks, size_t slot, enum erg_gpu_mark_side side,
                         uint32_t round, void *stream);

/*
 * Whether the stream has reached the place. One thread calls it, not necessarily the one that
 * records; a slot that the driver has lost counts as reached.
 */
bool erg_gpu_marks_reached(struct erg_gpu_marks *marks, size_t slot, enum erg_gpu_mark_side side,
                           uint32_t round);

/* Seconds between both sides of a slot, after both were reached; NaN: unknown. */
double erg_gpu_marks_seconds(struct erg_gpu_marks *marks, size_t slot);

#endif
