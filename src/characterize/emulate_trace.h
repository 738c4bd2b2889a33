/*
 * Traces of an emulated iteration: what a profiler would have recorded on a GPU (trace/).
 *
 * Of each kind of pass the kernels of one category are one record for all layers of a microbatch,
 * in the order norms, gathers, products, elementwise kernels, sums: so their seconds are right, not
 * their number. An exchange begins beside nothing for as long as nothing hides it. A message is a
 * record of its sender, from the end of the pass on, and of its receiver, which waits for it.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_TRACE_H
#define ERG_CHARACTERIZE_EMULATE_TRACE_H

#include "characterize/emulate_internal.h"
#include "trace/kernel_record.h"

/* Of one GPU; all that it points to is its own. To be released. */
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
 * FOLDER/traces/ID.rank-R.json, .chakra.json and .et of the first GPU of every stage: Kineto's
 * format, and Chakra's as JSON and as protobuf.
 */
int erg_emulation_write_traces(const struct emulation *emulation, const char *folder,
                               struct erg_error *err);

#endif
