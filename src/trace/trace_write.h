/*
 * Traces for other tools: Kineto's JSON, as PyTorch's profiler writes it, for viewers and for ergon
 * import; Chakra's execution traces, as protobuf or JSON, for network simulators. Records need
 * their categories.
 */
#ifndef ERG_TRACE_TRACE_WRITE_H
#define ERG_TRACE_TRACE_WRITE_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

/* Writes all events; times to the nanosecond. */
int erg_trace_write_kineto(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err);

/*
 * Writes one node for each record, in order of their start. It depends on the records that it needs
 * and on the previous one of its stream. Fails if a record needs one that is not earlier.
 */
int erg_trace_write_chakra(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err);
int erg_trace_write_chakra_json(const struct erg_kernel_trace *trace, const char *path,
                                struct erg_error *err);

#endif
