/*
 * What a test asks of the fake CUDA driver (fake_cuda.c) that it has opened itself. A stream is
 * work that takes a while, done in order, on no GPU at all; what is queued behind it comes to pass
 * then.
 */
#ifndef ERGON_TESTS_FAKE_CUDA_H
#define ERGON_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

/* A stream of a context of its own, which becomes the calling thread's. */
void *fake_cuda_stream(void);

/* Queues work; returns when it will be done, of CLOCK_MONOTONIC. */
int64_t fake_cuda_work(void *stream, double seconds);

/* From now on the stream is captured into a graph, or no more. */
void fake_cuda_capture(void *stream, bool captures);

/* Calls of an entry point so far. */
unsigned fake_cuda_calls(const char *name);

/* Calls from threads without a context. */
unsigned fake_cuda_strays(void);

#endif
