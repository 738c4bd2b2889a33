/*
 * Mesh: the ranks of a stage as a grid of tensor x context, each with a GPU. Rank r has place r %
 * tensor in its tensor group, whose ranks are neighbours and hold parts of one matrix, and place r
 * / tensor in its context group, whose ranks hold parts of one sequence.
 *
 * Ranks of a context group see different tokens, as in data parallelism. As there, the gradients of
 * weights are summed over them once per step, when gradients are reduced (those of the norms of
 * heads over the tensor group, too): neither here nor in a partition.
 */
#ifndef ERG_CUDA_MESH_H
#define ERG_CUDA_MESH_H

#include "device/cuda/collective.h"

/* The groups of the two degrees. */
enum erg_mesh_axis { ERG_MESH_TENSOR, ERG_MESH_CONTEXT, ERG_MESH_AXES };

struct erg_mesh {
    int degrees[ERG_MESH_AXES], places[ERG_MESH_AXES]; /* of this rank */
    /* Our collectives and, if `library` was set, NCCL's; NULL for a degree of 1. */
    struct erg_collective *groups[ERG_MESH_AXES], *libraries[ERG_MESH_AXES];
};

struct erg_mesh_options {
    const struct erg_launch_environment *env; /* tensor x context ranks */
    struct erg_rendezvous *rendezvous;        /* outlives the mesh */
    int tensor, context;
    bool library;     /* also connect by NCCL, which needs a GPU for every rank */
    double timeout_s; /* as in device/cuda/collective.h */
};

/* World call. The mesh must be closed even after a failure; all-zero is a valid closed one. */
int erg_mesh_open(struct erg_mesh *mesh, const struct erg_mesh_options *options,
                  struct erg_error *err);
void erg_mesh_close(struct erg_mesh *mesh);

/* Waits for the stream; fails within seconds if a rank of the mesh has died. */
int erg_mesh_wait(struct erg_mesh *mesh, struct CUstream_st *stream, struct erg_error *err);

#endif
