/* Declarations shared by the files of partition/. */
#ifndef ERG_PARTITION_INTERNAL_H
#define ERG_PARTITION_INTERNAL_H

#include "partition/cut_internal.h"

enum { MAX_PARTITIONS = 32 }; /* of a workload, both directions */

/* One layer of the workload for a batch of `sequences`. */
struct erg_model_shape erg_partition_shape(const struct erg_workload_request *request,
                                           int sequences);

/*
 * The segments of `layers` layers in one direction for a batch of `sequences`; `replay` puts the
 * layer's forward before its backward.
 */
int erg_partition_cut_layers(struct erg_segments *segments,
                             const struct erg_workload_request *request, int sequences, int layers,
                             bool backward, bool replay, struct erg_error *err);

/*
 * The steady state: the middle one of three layers. *first and *count delimit its segments; a
 * layer without communication has none.
 */
int erg_partition_cut_steady_layer(struct erg_segments *segments,
                                   const struct erg_workload_request *request, int sequences,
                                   bool backward, bool replay, size_t *first, size_t *count,
                                   struct erg_error *err);

/* *apart: a layer that is computed again ends before its backward pass begins to compute, so that
 * its segments are those of the forward pass. */
int erg_partition_replay_apart(const struct erg_workload_request *request, bool *apart,
                               struct erg_error *err);

/* The name of a partition that computes `parts`, without its communication: "fwd_attn". */
void erg_partition_name(char *name, size_t capacity, bool backward, unsigned parts);

/* Appends the partition types of one direction to the workload's, which has room for them; with
 * `replay` those of a layer's forward and backward. */
int erg_partition_derive(struct erg_workload *workload, const struct erg_workload_request *request,
                         bool backward, bool replay, struct erg_error *err);

/* The fewest SMs on which the communication of `task`, launched at once, is hidden, or the most
 * where none hide it: for the ends of an instruction. */
int erg_partition_end_sms(const struct erg_workload_request *request, const struct erg_task *task,
                          int *sms, struct erg_error *err);

void erg_partition_append(struct erg_workload *workload, struct erg_steps *steps,
                          const struct erg_step *step);

/* The compute of a segment concurrent with the library's `comm`, launched at once or after all
 * compute. */
void erg_partition_append_segment(struct erg_workload *workload, struct erg_steps *steps,
                                  const struct erg_segment *segment, struct erg_comm comm,
                                  bool at_once);

/* A segment of sequential execution: its communication by the library, after all compute. */
void erg_partition_append_sequential(struct erg_workload *workload, struct erg_steps *steps,
                                     const struct erg_workload_request *request,
                                     const struct erg_segment *segment);

#endif
