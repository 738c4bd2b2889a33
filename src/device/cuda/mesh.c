/* Mesh: connects the ranks of a stage as tensor and context groups. */
#include "device/cuda/mesh.h"

static int open_axis(struct erg_mesh *mesh, enum erg_mesh_axis axis,
                     const struct erg_mesh_options *options, struct erg_error *err)
{
    int degree = mesh->degrees[axis], ranks[ERG_COLLECTIVE_MOST_RANKS];
    int step = axis == ERG_MESH_TENSOR ? 1 : options->tensor;
    int first = options->env->rank - mesh->places[axis] * step;
    if (degree > ERG_COLLECTIVE_MOST_RANKS)
        return erg_fail(err, ERG_INFEASIBLE, "connecting %d GPUs: expected at most %d in a group",
                        degree, ERG_COLLECTIVE_MOST_RANKS);
    for (int i = 0; i < degree; i++)
        ranks[i] = first + i * step;
    struct erg_collective_options group = {
        .env = options->env,
        .rendezvous = options->rendezvous,
        .ranks = ranks,
        .rank_count = degree,
        .method = ERG_COLLECTIVE_PEER,
        .timeout_s = options->timeout_s,
    };
    if (erg_collective_open(&mesh->groups[axis], &group, err))
        return -1;
    if (!options->library)
        return 0;
    group.method = ERG_COLLECTIVE_LIBRARY;
    return erg_collective_open(&mesh->libraries[axis], &group, err) ||
                   erg_collective_prepare(mesh->libraries[axis], 0, err)
               ? -1
               : 0;
}

int erg_mesh_open(struct erg_mesh *mesh, const struct erg_mesh_options *options,
                  struct erg_error *err)
{
    int rank = options->env->rank, world = options->env->world;
    *mesh = (struct erg_mesh){
        .degrees = {options->tensor, options->context},
        .places = {rank % options->tensor, rank / options->tensor},
    };
    if (options->tensor * options->context != world)
        return erg_fail(err, ERG_USAGE, "a mesh of tensor %d x context %d, expected %d ranks",
                        options->tensor, options->context, world);
    for (int axis = 0; axis < ERG_MESH_AXES; axis++)
        if (mesh->degrees[axis] > 1 && open_axis(mesh, (enum erg_mesh_axis)axis, options, err))
            return -1;
    return 0;
}

void erg_mesh_close(struct erg_mesh *mesh)
{
    for (int axis = 0; axis < ERG_MESH_AXES; axis++) {
        erg_collective_close(mesh->libraries[axis]);
        erg_collective_close(mesh->groups[axis]);
    }
    *mesh = (struct erg_mesh){0};
}

int erg_mesh_wait(struct erg_mesh *mesh, struct CUstream_st *stream, struct erg_error *err)
{
    struct erg_collective *tensor = mesh->groups[ERG_MESH_TENSOR];
    struct erg_collective *context = mesh->groups[ERG_MESH_CONTEXT];
    struct erg_collective *first = tensor ? tensor : context;
    if (!first)
        return erg_cuda_stream_sync(stream, err);
    int status = erg_collective_wait(first, stream, err);
    /* Even after a failure: it ends work that waits for ranks of the other group. */
    struct erg_error other;
    if (tensor && context && erg_collective_check(context, status ? &other : err))
        status = -1;
    return status;
}
