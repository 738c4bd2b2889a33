/* The ranks of a CUDA device that follow rank 0, and what all of them say to each other. */
#include "device/cuda/cuda_device_internal.h"
#include "device/packed_steps.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Followers wait for the next command as long as rank 0 lives; its death is noticed sooner. */
static const double patience_s = 1e9;

int erg_device_gather_spans(struct erg_worker *worker, const struct erg_worker_options *options,
                            struct erg_device_span *all, struct erg_error *err)
{
    struct erg_device_span mine[ERG_DEVICE_SPANS];
    return erg_worker_spans(worker, mine, err) ||
                   erg_rendezvous_all_gather(options->rendezvous, mine, sizeof mine, all,
                                             DEVICE_ANSWER_S, err)
               ? -1
               : 0;
}

int erg_device_gather_differences(const struct erg_worker *worker,
                                  const struct erg_worker_options *options, size_t pass,
                                  size_t reference, struct erg_difference **all, size_t *count,
                                  struct erg_error *err)
{
    struct erg_difference mine[ERG_DIFFERENCES] = {0};
    *count = erg_worker_compare(worker, pass, reference, mine);
    *all = erg_xcalloc((size_t)options->env->world, sizeof mine);
    return erg_rendezvous_all_gather(options->rendezvous, mine, sizeof mine, *all, DEVICE_ANSWER_S,
                                     err);
}

int erg_device_check_machines(const struct erg_worker_options *options, struct erg_error *err)
{
    typedef char machine_name[ERG_LAUNCH_MACHINE_BYTES];
    machine_name mine = {0}, *all = erg_xcalloc((size_t)options->env->world, sizeof *all);
    erg_launch_machine(mine);
    int status = erg_rendezvous_all_gather(options->rendezvous, mine, sizeof mine, all,
                                           DEVICE_ANSWER_S, err);
    for (int rank = 1; !status && rank < options->env->world; rank++)
        if (strncmp(all[rank], all[0], sizeof mine) != 0)
            status = erg_fail(err, ERG_INFEASIBLE,
                              "measuring on several machines: rank %d is not on that of rank 0; "
                              "expected all GPUs of a stage on one machine",
                              rank);
    free(all);
    return status;
}

int erg_device_share_buses(const struct erg_worker *worker,
                           const struct erg_worker_options *options, char **buses,
                           struct erg_error *err)
{
    const struct erg_cuda *cuda = erg_worker_cuda(worker);
    *buses = erg_xcalloc((size_t)options->env->world, sizeof cuda->bus);
    int status = erg_rendezvous_all_gather(options->rendezvous, cuda->bus, sizeof cuda->bus, *buses,
                                           DEVICE_ANSWER_S, err);
    for (int rank = 0; rank < options->env->world; rank++)
        (*buses)[(size_t)(rank + 1) * sizeof cuda->bus - 1] = '\0';
    return status;
}

static int obey_enqueue(struct erg_worker *worker, const struct erg_worker_options *options,
                        const struct device_message *message, struct erg_error *err)
{
    if (message->bytes > ERG_RENDEZVOUS_MOST_BYTES)
        return erg_fail(err, ERG_FAILED,
                        "rank 0 announced steps of %llu bytes, expected %d at most",
                        (unsigned long long)message->bytes, ERG_RENDEZVOUS_MOST_BYTES);
    char *bytes = erg_xmalloc(message->bytes);
    const struct erg_step *steps;
    int status =
        erg_rendezvous_broadcast(options->rendezvous, 0, bytes, message->bytes, DEVICE_ANSWER_S,
                                 err) ||
                erg_packed_steps_read(bytes, message->bytes, message->steps, &steps, err) ||
                erg_worker_enqueue(worker, steps, message->steps, message->repeats,
                                   message->delay_ns, err)
            ? -1
            : 0;
    free(bytes);
    return status;
}

static int obey(struct erg_worker *worker, const struct erg_worker_options *options,
                const struct device_message *message, struct erg_error *err)
{
    switch ((enum device_command)message->command) {
    case COMMAND_BEGIN:
        return erg_worker_begin(worker, err);
    case COMMAND_ENQUEUE:
        return obey_enqueue(worker, options, message, err);
    case COMMAND_SYNC: {
        struct erg_device_span *all =
            erg_xcalloc((size_t)options->env->world * ERG_DEVICE_SPANS, sizeof *all);
        int status =
            erg_worker_sync(worker, err) || erg_device_gather_spans(worker, options, all, err) ? -1
                                                                                               : 0;
        free(all);
        return status;
    }
    case COMMAND_REPEAT:
        return erg_worker_repeat(worker, message->pass != 0, err);
    case COMMAND_CLEAR:
        return erg_worker_clear(worker, err);
    case COMMAND_NOTE:
        return erg_worker_note(worker, message->pass, err);
    case COMMAND_COMPARE: {
        struct erg_difference *all = NULL;
        size_t count;
        int status = erg_device_gather_differences(worker, options, message->pass,
                                                   message->reference, &all, &count, err);
        free(all);
        return status;
    }
    case COMMAND_CLOSE:
        break;
    }
    return 0;
}

int erg_cuda_device_follow(const struct erg_worker_options *options, struct erg_error *err)
{
    struct erg_worker *worker;
    if (erg_device_check_machines(options, err) || erg_worker_open(&worker, options, err))
        return -1;
    char *buses = NULL;
    int status = erg_device_share_buses(worker, options, &buses, err);
    free(buses);
    struct device_message message = {.command = COMMAND_BEGIN};
    while (!status && message.command != COMMAND_CLOSE) {
        status = erg_rendezvous_broadcast(options->rendezvous, 0, &message, sizeof message,
                                          patience_s, err);
        if (!status)
            status = obey(worker, options, &message, err);
    }
    if (!status)
        return erg_worker_close(worker, err);
    struct erg_error ignored;
    erg_worker_close(worker, &ignored);
    return -1;
}
