/* The work of every rank of a CUDA device, and the loop of the ranks that follow rank 0. */
#include "device/cuda/cuda_device_internal.h"
#include "device/packed_steps.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Followers wait for the next command as long as rank 0 lives; they notice its death sooner. */
static const double patience_s = 1e9;

static int gather(const struct erg_worker_options *options, const void *mine, size_t bytes,
                  void *all, struct erg_error *err)
{
    return erg_rendezvous_all_gather(options->rendezvous, mine, bytes, all, DEVICE_ANSWER_S, err);
}

/* Rank 0 reads the sensors of all GPUs and compares their spans: they are on its machine. */
static int check_machines(const struct erg_worker_options *options, struct erg_error *err)
{
    typedef char machine_name[ERG_LAUNCH_MACHINE_BYTES];
    machine_name mine = {0}, *all = erg_xcalloc((size_t)options->env->world, sizeof *all);
    erg_launch_machine(mine);
    int status = gather(options, mine, sizeof mine, all, err);
    for (int rank = 1; !status && rank < options->env->world; rank++)
        if (strncmp(all[rank], all[0], sizeof mine) != 0)
            status = erg_fail(err, ERG_INFEASIBLE,
                              "measuring on several machines: rank %d is not on rank 0's machine; "
                              "expected all GPUs of a stage on one machine",
                              rank);
    free(all);
    return status;
}

static int share_buses(struct device_rank *rank, struct erg_error *err)
{
    const struct erg_cuda *cuda = erg_worker_cuda(rank->worker);
    int status = gather(rank->options, cuda->bus, sizeof cuda->bus, rank->buses, err);
    for (int i = 0; i < rank->options->env->world; i++)
        rank->buses[(size_t)(i + 1) * sizeof cuda->bus - 1] = '\0';
    return status;
}

int erg_device_rank_open(struct device_rank *rank, const struct erg_worker_options *options,
                         struct erg_error *err)
{
    size_t world = (size_t)options->env->world;
    *rank = (struct device_rank){.options = options};
    if (check_machines(options, err) || erg_worker_open(&rank->worker, options, err))
        return -1;
    rank->buses = erg_xcalloc(world, sizeof erg_worker_cuda(rank->worker)->bus);
    rank->spans = erg_xcalloc(world * ERG_DEVICE_SPANS, sizeof *rank->spans);
    rank->differences = erg_xcalloc(world * ERG_DIFFERENCES, sizeof *rank->differences);
    if (!share_buses(rank, err))
        return 0;
    struct erg_error ignored;
    erg_device_rank_close(rank, &ignored);
    return -1;
}

int erg_device_rank_close(struct device_rank *rank, struct erg_error *err)
{
    free(rank->buses);
    free(rank->spans);
    free(rank->differences);
    return erg_worker_close(rank->worker, err);
}

static int enqueue(const struct device_rank *rank, const struct device_message *message,
                   char *bytes, struct erg_error *err)
{
    const struct erg_step *steps;
    int64_t delay_ns = rank->options->env->rank ? message->delay_ns : 0;
    return erg_packed_steps_read(bytes, message->bytes, message->steps, &steps, err) ||
                   erg_worker_enqueue(rank->worker, steps, message->steps, message->repeats,
                                      delay_ns, err)
               ? -1
               : 0;
}

static int sync_all(const struct device_rank *rank, struct erg_error *err)
{
    struct erg_device_span mine[ERG_DEVICE_SPANS];
    return erg_worker_sync(rank->worker, err) || erg_worker_spans(rank->worker, mine, err) ||
                   gather(rank->options, mine, sizeof mine, rank->spans, err)
               ? -1
               : 0;
}

int erg_device_obey(struct device_rank *rank, const struct device_message *message, char *bytes,
                    struct erg_error *err)
{
    struct erg_difference mine[ERG_DIFFERENCES] = {0};
    switch ((enum device_command)message->command) {
    case COMMAND_BEGIN:
        return erg_worker_begin(rank->worker, err);
    case COMMAND_ENQUEUE:
        return enqueue(rank, message, bytes, err);
    case COMMAND_SYNC:
        return sync_all(rank, err);
    case COMMAND_REPEAT:
        return erg_worker_repeat(rank->worker, message->pass != 0, err);
    case COMMAND_CLEAR:
        return erg_worker_clear(rank->worker, err);
    case COMMAND_NOTE:
        return erg_worker_note(rank->worker, message->pass, err);
    case COMMAND_COMPARE:
        rank->difference_count =
            erg_worker_compare(rank->worker, message->pass, message->reference, mine);
        return gather(rank->options, mine, sizeof mine, rank->differences, err);
    case COMMAND_CLOSE:
        break;
    }
    return 0;
}

/* Receives the encoded steps of an enqueue; the caller frees them. */
static int receive(const struct erg_worker_options *options, size_t count, char **bytes,
                   struct erg_error *err)
{
    *bytes = NULL;
    if (count > ERG_RENDEZVOUS_MOST_BYTES)
        return erg_fail(err, ERG_FAILED, "rank 0 announced steps of %zu bytes, expected %d at most",
                        count, ERG_RENDEZVOUS_MOST_BYTES);
    *bytes = erg_xmalloc(count);
    return erg_rendezvous_broadcast(options->rendezvous, 0, *bytes, count, DEVICE_ANSWER_S, err);
}

int erg_cuda_device_follow(const struct erg_worker_options *options, struct erg_error *err)
{
    struct device_rank rank;
    if (erg_device_rank_open(&rank, options, err))
        return -1;
    int status = 0;
    struct device_message message = {.command = COMMAND_BEGIN};
    while (!status && message.command != COMMAND_CLOSE) {
        char *bytes = NULL;
        status = erg_rendezvous_broadcast(options->rendezvous, 0, &message, sizeof message,
                                          patience_s, err) ||
                         (message.bytes && receive(options, message.bytes, &bytes, err)) ||
                         erg_device_obey(&rank, &message, bytes, err)
                     ? -1
                     : 0;
        free(bytes);
    }
    struct erg_error ignored;
    return erg_device_rank_close(&rank, status ? &ignored : err) || status ? -1 : 0;
}
