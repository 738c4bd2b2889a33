/*
 * Traces as other tools read them: Kineto's JSON, as PyTorch's profiler writes it, for viewers and
 * for ergon import; Chakra's execution traces, as protobuf and as the same in JSON, for simulators
 * of networks. Records need their categories.
 */
#ifndef ERG_TRACE_TRACE_WRITE_H
#define ERG_TRACE_TRACE_WRITE_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

/* All events; times to the nanosecond. */
int erg_trace_write_kineto(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err);

/*
 * One node for each record, in order of their start, whose dependencies are the records that it
 * needs and the one before it on its stream. Fails where a record needs one that is not earlier.
 */
int erg_trace_write_chakra(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err);
int erg_trace_write_chakra_json(const struct erg_kernel_trace *trace, const char *path,
                                struct erg_error *err);

#endif
