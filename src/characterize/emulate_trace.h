/*
 * Traces of an emulated iteration: what a profiler would have recorded on a GPU (trace/).
 *
 * For each kind of pass, the kernels of one category are one record for all layers of a microbatch,
 * in the order norms, gathers, products, elementwise kernels, sums. So times are right, and counts
 * are not. An exchange starts with its exposed part. A message is a record on its sender, from the
 * end of the pass, and on its receiver, which waits for it.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_TRACE_H
#define ERG_CHARACTERIZE_EMULATE_TRACE_H

#include "characterize/emulate_internal.h"
#include "trace/kernel_record.h"

/* The records of one GPU, which own all that they point to. Release them. */
struct erg_emulated_trace {
    struct erg_kernel_trace trace;
    struct erg_kernel_record *records;
    size_t count, capacity;
    struct erg_emulated_counters {
        struct erg_kernel_counter *items;
        size_t count, capacity;
    } counters;
    struct erg_kernel_device device;
    struct erg_arena arena;
};
void erg_emulation_trace(struct erg_emulated_trace *trace, const struct emulation *emulation,
                         long rank);
void erg_emulated_trace_release(struct erg_emulated_trace *trace);

/*
 * Writes FOLDER/traces/ID.rank-R.json, .chakra.json and .et for the first GPU of every stage:
 * Kineto's format, and Chakra's as JSON and as protobuf.
 */
int erg_emulation_write_traces(const struct emulation *emulation, const char *folder,
                               struct erg_error *err);

#endif
