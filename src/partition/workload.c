/* The workload of a job: whole layers, what runs outside of layers, and all of it together. */
#include "partition/partition.h"
#include "partition/partition_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One layer in its steady state, communication after compute. */
static int add_sequential_layer(struct erg_workload *workload, struct erg_steps *steps,
                                const struct erg_workload_request *request, bool backward,
                                bool replay, struct erg_error *err)
{
    struct erg_segments segments = {0};
    size_t first = 0, count = 0;
    int status = erg_partition_cut_steady_layer(&segments, request, request->microbatch_size,
                                                backward, replay, &first, &count, err);
    if (!status && !count) { /* no communication in a layer: one step of pure compute */
        erg_segments_release(&segments);
        status = erg_partition_cut_layers(&segments, request, request->microbatch_size, 1, backward,
                                          replay, err);
        first = 0;
        count = segments.count;
    }
    for (size_t k = first; !status && k < first + count; k++)
        erg_partition_append_sequential(workload, steps, request, &segments.items[k]);
    erg_segments_release(&segments);
    return status;
}

static int add_nanobatch_layer(struct erg_workload *workload, struct erg_steps *steps,
                               const struct erg_workload_request *request, bool backward,
                               bool replay, struct erg_error *err)
{
    struct erg_segments segments = {0};
    size_t first = 0, count = 0;
    int status = erg_partition_cut_steady_layer(&segments, request, request->microbatch_size / 2,
                                                backward, replay, &first, &count, err);
    for (size_t k = first; !status && k < first + count; k++) {
        erg_partition_append_segment(workload, steps, &segments.items[k],
                                     segments.items[k - 1].comm, true);
        erg_partition_append_segment(workload, steps, &segments.items[k], segments.items[k].comm,
                                     true);
    }
    erg_segments_release(&segments);
    return status;
}

static int add_layers(struct erg_workload *workload, const struct erg_workload_request *request,
                      struct erg_error *err)
{
    for (int direction = 0; direction < 2; direction++) {
        bool replay = direction == 1 && request->recompute && !workload->replays_forward;
        for (int part = direction == 1 && workload->replays_forward ? 0 : direction;
             part <= direction; part++) {
            if (add_sequential_layer(workload, &workload->sequential[direction], request, part == 1,
                                     replay, err))
                return -1;
            if (workload->nanobatched &&
                add_nanobatch_layer(workload, &workload->nanobatch[direction], request, part == 1,
                                    replay, err))
                return -1;
        }
    }
    return 0;
}

const char *erg_fixed_name(enum erg_fixed fixed)
{
    static const char *const names[ERG_FIXED_COUNT] = {
        "embedding_forward", "embedding_backward", "embedding_backward_nanobatch",
        "head_forward",      "head_backward",
    };
    assert(fixed < ERG_FIXED_COUNT);
    return names[fixed];
}

static int add_fixed(struct erg_workload *workload, const struct erg_workload_request *request,
                     struct erg_error *err)
{
    for (int fixed = 0; fixed < ERG_FIXED_COUNT; fixed++) {
        bool half = fixed == ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH;
        if (half && !workload->nanobatched)
            continue;
        struct erg_model_shape shape = erg_partition_shape(
            request, half ? request->microbatch_size / 2 : request->microbatch_size);
        struct erg_model_ops ops = {0};
        switch ((enum erg_fixed)fixed) {
        case ERG_FIXED_EMBEDDING_FORWARD:
            erg_model_embedding_forward(&ops, request->model, &shape);
            break;
        case ERG_FIXED_EMBEDDING_BACKWARD:
        case ERG_FIXED_EMBEDDING_BACKWARD_NANOBATCH:
            erg_model_embedding_backward(&ops, request->model, &shape);
            break;
        case ERG_FIXED_HEAD_FORWARD:
            erg_model_head_forward(&ops, request->model, &shape);
            break;
        case ERG_FIXED_HEAD_BACKWARD:
            erg_model_head_backward(&ops, request->model, &shape);
            break;
        case ERG_FIXED_COUNT:
            break;
        }
        struct erg_segments segments = {0};
        int status = erg_segments_add(&segments, &ops, err);
        for (size_t k = 0; !status && k < segments.count; k++)
            erg_partition_append_segment(workload, &workload->fixed[fixed], &segments.items[k],
                                         segments.items[k].comm, false);
        erg_segments_release(&segments);
        if (status)
            return -1;
    }
    return 0;
}

/* ---- the ends of an instruction ---- */

static void append_task(struct erg_workload *workload, struct erg_steps *steps,
                        struct erg_task task, int sms)
{
    struct erg_step step = {.task = task, .launch = {.sms = sms}};
    erg_partition_append(workload, steps, &step);
}

/*
 * The ends of an instruction are its first partition and the tail, which runs while the last
 * communication does. Under sequence parallelism, where the norms of both nanobatches come first,
 * the ends are these norms, the first partition after them, and both tails.
 */
static bool is_end(const struct erg_stage_partition *list, size_t count, size_t index)
{
    assert(count >= 2 && index < count);
    if (list[1].task.comm.kind != ERG_COMM_ALLGATHER_HIDDEN)
        return index == 0 || index == count - 2;
    return index <= 2 || index >= count - 2;
}

static int append_end(struct erg_workload *workload, const struct erg_workload_request *request,
                      int direction, const struct erg_stage_partition *end, struct erg_error *err)
{
    int sms = 0;
    if (end->task.comm.kind != ERG_COMM_NONE &&
        erg_partition_end_sms(request, &end->task, &sms, err))
        return -1;
    append_task(workload, &workload->ends[direction], end->task, sms);
    return 0;
}

static int add_ends(struct erg_workload *workload, const struct erg_workload_request *request,
                    struct erg_error *err)
{
    for (int direction = 0; direction < 2; direction++) {
        const struct erg_stage_partition *list;
        size_t count;
        if (erg_stage_partitions(workload, request, 1, direction == 1, &list, &count, err))
            return -1;
        for (size_t i = 0; i < count; i++) {
            struct erg_task task = list[i].task;
            task.comm.library = true;
            append_task(workload, &workload->nanobatch_single[direction], task, 0);
        }
        for (size_t i = 0; i < count; i++)
            if (is_end(list, count, i) && append_end(workload, request, direction, &list[i], err))
                return -1;
    }
    return 0;
}

/* ---- all of it ---- */

void erg_workload_set_recompute(struct erg_workload_request *request, enum erg_recompute recompute)
{
    request->recompute = recompute == ERG_RECOMPUTE_FULL;
    request->norms_again = erg_recompute_norms(recompute);
    request->activation_again = erg_recompute_activation(recompute);
}

struct erg_workload_request erg_workload_of_job(const struct erg_job *job,
                                                const struct erg_gpu *gpu)
{
    struct erg_workload_request request = {
        .model = job->model,
        .gpu = gpu,
        .stack = job->stack,
        .tensor = (int)job->layout.tensor,
        .context = (int)job->layout.context,
        .microbatch_size = (int)job->layout.microbatch,
        .sequence = (int)job->layout.sequence,
        .sequence_parallel = erg_job_splits_stream(job),
    };
    erg_workload_set_recompute(&request, job->layout.recompute);
    return request;
}

/* Under sequence parallelism tensor ranks have equal shares of the rows, of both nanobatches where
 * there are two. */
static int check_rows(const struct erg_workload_request *request, struct erg_error *err)
{
    const int split = request->microbatch_size % 2 == 0 ? 2 : 1;
    const int rows = request->microbatch_size / split * request->sequence / request->context;
    if (!request->sequence_parallel || rows % request->tensor == 0)
        return 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "key 'train.sequence_parallel': tensor %d cannot share the %d tokens of a %s; "
                    "expected a number of tokens that the tensor degree divides",
                    request->tensor, rows, split == 2 ? "nanobatch" : "microbatch");
}

/* Layouts know more models than devices run. */
static int check_model(const struct erg_model *model, struct erg_error *err)
{
    if (!model->experts.count && !model->latent.keys)
        return 0;
    return erg_fail(err, ERG_INFEASIBLE,
                    "%s has %s, whose operations cannot be run one by one; ergon layout, ergon "
                    "memory and the simulator support it",
                    model->name,
                    model->experts.count ? "a mixture of experts"
                                         : "keys and values from short rows");
}

int erg_workload_build(struct erg_workload *workload, const struct erg_workload_request *request,
                       struct erg_error *err)
{
    *workload = (struct erg_workload){0};
    if (check_model(request->model, err) != 0 || check_rows(request, err) != 0)
        return -1;
    workload->arena = erg_xcalloc(1, sizeof *workload->arena);
    workload->partitions =
        erg_arena_alloc(workload->arena, MAX_PARTITIONS * sizeof *workload->partitions);
    bool communicates = request->tensor > 1 || request->context > 1;
    workload->nanobatched = communicates && request->microbatch_size % 2 == 0;
    workload->boundary_bytes = 2.0 * request->microbatch_size * request->sequence /
                               request->context * (double)request->model->hidden;
    bool apart = false;
    int status = request->recompute ? erg_partition_replay_apart(request, &apart, err) : 0;
    workload->replays_forward = apart;
    bool replay = request->recompute && !apart;
    if (status ||
        (workload->nanobatched && (erg_partition_derive(workload, request, false, false, err) ||
                                   erg_partition_derive(workload, request, true, replay, err) ||
                                   add_ends(workload, request, err))) ||
        add_layers(workload, request, err) || add_fixed(workload, request, err)) {
        erg_workload_release(workload);
        return -1;
    }
    return 0;
}

void erg_workload_release(struct erg_workload *workload)
{
    if (workload->arena)
        erg_arena_release(workload->arena);
    free(workload->arena);
    *workload = (struct erg_workload){0};
}
