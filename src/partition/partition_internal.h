/* What the files of partition/ share. */
#ifndef ERG_PARTITION_INTERNAL_H
#define ERG_PARTITION_INTERNAL_H

#include "partition/cut_internal.h"

/*
 * The segments of `layers` layers in one direction for a batch of `sequences`; `replay` puts the
 * layer's forward before its backward.
 */
int partition_cut_layers(struct erg_segments *segments, const struct erg_workload_request *request,
                         int sequences, int layers, bool backward, bool replay,
                         struct erg_error *err);

/* What a partition that computes `parts` is called, short of its communication: "fwd_attn". */
void partition_name(char *name, size_t capacity, bool backward, unsigned parts);

void partition_append(struct erg_workload *workload, struct erg_steps *steps,
                      const struct erg_step *step);

/* A segment of sequential execution: its communication by the library, after all compute. */
void partition_append_sequential(struct erg_workload *workload, struct erg_steps *steps,
                                 const struct erg_workload_request *request,
                                 const struct erg_segment *segment);

#endif
