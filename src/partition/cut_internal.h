/* Cutting op lists at communications; private to partition/. */
#ifndef ERG_PARTITION_CUT_INTERNAL_H
#define ERG_PARTITION_CUT_INTERNAL_H

#include "base/memory.h"
#include "partition/partition.h"

/* A segment's op: one or several model ops merged, or one GEMM of a linear's backward. */
struct erg_piece {
    struct erg_op op;
    const char *name;
    enum erg_model_group group;
    bool starts_slot; /* false for the weight gradient that follows an input gradient */
};

struct erg_segment {
    struct erg_piece *pieces;
    size_t count, capacity;
    unsigned parts;       /* bit per enum erg_model_op_id of the compute in it */
    struct erg_comm comm; /* what follows; kind ERG_COMM_NONE for a tail */
};

struct erg_segments {
    struct erg_segment *items;
    size_t count, capacity;
};

/*
 * Appends `ops` to the segments: compute goes to the open segment (one without communication), a
 * communication closes it. Neighbouring memory-bound ops of a group and direction merge. A
 * communication with no compute before it is fused with the one it follows; different kinds cannot
 * be (ERG_FAILED). A reduce-scatter, norms and an all-gather of hidden states are one
 * communication.
 */
int erg_segments_add(struct erg_segments *segments, const struct erg_model_ops *ops,
                     struct erg_error *err);
void erg_segments_release(struct erg_segments *segments);

/* A task of the segment's compute concurrent with `comm`, in the arena; names may be NULL. */
struct erg_task erg_segment_task(struct erg_arena *arena, const struct erg_segment *segment,
                                 struct erg_comm comm, const char ***names);

int erg_task_kernels(const struct erg_task *task);

#endif
