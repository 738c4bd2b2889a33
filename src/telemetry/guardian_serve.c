/* The guardian's process. */
#include "base/memory.h"
#include "base/thread.h"
#include "telemetry/claim.h"
#include "telemetry/gpu_internal.h"
#include "telemetry/guardian.h"
#include "telemetry/knobs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200, TRIES = 100, TRY_MS = 100 };

struct watch {
    struct erg_gpus *gpus;
    int *claims;              /* lock files; 0: GPU is not watched */
    bool *clocks;             /* the GPUs to unlock */
    int64_t *limits_mw;       /* to restore; 0: no limit is watched */
    struct erg_error *errors; /* of unlocking, per GPU */
};

static void answer(int socket, int failed, bool refused, const struct erg_error *error)
{
    struct erg_guardian_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.version = ERG_GUARDIAN_VERSION;
    answer.failed = failed;
    answer.refused = refused;
    answer.error = *error;
    send(socket, &answer, sizeof answer, MSG_NOSIGNAL); /* recv detects an owner that has ended */
}

static int unlock(const struct erg_open_gpu *gpu, const struct erg_gpus *gpus,
                  struct erg_error *err)
{
    if (!gpus->vendor->clocks)
        return erg_fail(
            err, ERG_NO_DEVICE,
            "preparing to lock clocks: those of %s GPUs cannot be locked, expected GPUs "
            "of NVIDIA's",
            gpu->info.vendor);
    return gpus->vendor->clocks->unlock(gpu, err);
}

/* Setting a limit to its current value is harmless, and shows whether the driver permits it. */
static int watch_limit(const struct erg_open_gpu *gpu, const struct watch *watch, int64_t *limit_mw,
                       bool *refused, struct erg_error *err)
{
    const struct erg_knob_methods *knobs = watch->gpus->vendor->knobs;
    int64_t now_mw = 0;
    int result = knobs ? knobs->read(gpu, ERG_KNOB_POWER, &now_mw) : -1;
    if (!result)
        result = knobs->set(gpu, ERG_KNOB_POWER, now_mw, now_mw);
    if (result) {
        *refused = true;
        return erg_fail(err, ERG_NO_DEVICE, "preparing to set the power limit of GPU %d: %s",
                        gpu->info.index,
                        knobs ? knobs->reason(result) : "that of this vendor cannot be set");
    }
    *limit_mw = now_mw;
    return 0;
}

static int start_watch(const struct watch *watch, size_t i, bool limit, bool *refused,
                       struct erg_error *err)
{
    const struct erg_open_gpu *gpu = &watch->gpus->items[i];
    if (limit ? watch->limits_mw[i] != 0 : watch->clocks[i])
        return 0;
    if (limit)
        return watch_limit(gpu, watch, &watch->limits_mw[i], refused, err);
    *refused = unlock(gpu, watch->gpus, err) != 0;
    watch->clocks[i] = !*refused;
    return *refused ? -1 : 0;
}

static int claim(const struct watch *watch, size_t i, struct erg_error *err)
{
    const struct erg_gpu_info *info = &watch->gpus->items[i].info;
    char folder[256];
    erg_claim_folder(folder, sizeof folder);
    if (erg_claim_take(folder, info->uuid, info->index, getppid(), &watch->claims[i], err) == 0)
        return 0;
    watch->claims[i] = 0;
    return -1;
}

static int add_watch(const struct watch *watch, const struct erg_guardian_request *request,
                     bool *refused, struct erg_error *err)
{
    for (size_t i = 0; i < watch->gpus->count; i++) {
        if (strcmp(watch->gpus->items[i].info.uuid, request->uuid) != 0)
            continue;
        if (!watch->claims[i] && claim(watch, i, err) != 0)
            return -1;
        if (start_watch(watch, i, request->task == ERG_GUARDIAN_LIMIT, refused, err) == 0)
            return 0;
        if (!watch->clocks[i] && !watch->limits_mw[i]) { /* not watched yet */
            close(watch->claims[i]);
            watch->claims[i] = 0;
        }
        return -1;
    }
    return erg_fail(err, ERG_NO_DEVICE,
                    "preparing to lock clocks: the guardian does not see GPU %s, expected the "
                    "GPUs of the process that started it",
                    request->uuid);
}

/* True when the owner reports that nothing is left to do, false when it has ended. */
static bool serve(const struct watch *watch, int socket, pid_t owner)
{
    for (;;) {
        struct pollfd wait = {.fd = socket, .events = POLLIN};
        struct erg_guardian_request request;
        struct erg_error error = {0};
        int ready = poll(&wait, 1, LOOK_MS);
        if (getppid() != owner)
            return false;
        if (ready <= 0)
            continue;
        ssize_t count = recv(socket, &request, sizeof request, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count != (ssize_t)sizeof request)
            return false;
        if (request.task == ERG_GUARDIAN_END)
            return true;
        request.uuid[sizeof request.uuid - 1] = '\0';
        bool refused = false;
        int failed = add_watch(watch, &request, &refused, &error);
        answer(socket, failed, refused, &error);
    }
}

static int restore_limit(const struct erg_open_gpu *gpu, const struct watch *watch, size_t i)
{
    const int64_t limit_mw = watch->limits_mw[i];
    int result =
        limit_mw ? watch->gpus->vendor->knobs->set(gpu, ERG_KNOB_POWER, limit_mw, limit_mw) : 0;
    if (result && watch->errors[i].status == ERG_OK)
        (void)erg_fail(&watch->errors[i], ERG_NO_DEVICE, "setting the power limit of GPU %d: %s",
                       gpu->info.index, watch->gpus->vendor->knobs->reason(result));
    return result;
}

/* One of the GPUs, in a thread of its own: a driver that hangs on one leaves the others free. */
static int restore(void *context, size_t i, struct erg_error *err)
{
    const struct watch *watch = context;
    const struct erg_open_gpu *gpu = &watch->gpus->items[i];
    (void)err; /* a failure must not stop the attempts on the others */
    for (int try = 0; watch->claims[i] && try < TRIES; try++) {
        watch->errors[i].status = ERG_OK;
        int failed = watch->clocks[i] ? unlock(gpu, watch->gpus, &watch->errors[i]) : 0;
        if (restore_limit(gpu, watch, i) == 0 && !failed)
            break;
        nanosleep(&(struct timespec){.tv_nsec = TRY_MS * 1000000L}, NULL);
    }
    return 0;
}

static int restore_all(struct watch *watch, struct erg_error *err)
{
    size_t count = watch->gpus->count;
    erg_parallel_for(count, count, restore, watch, NULL);
    for (size_t i = 0; i < count; i++)
        if (watch->errors[i].status != ERG_OK)
            return erg_fail(err, watch->errors[i].status, "after the end of the owner: %s",
                            watch->errors[i].message);
    return 0;
}

int erg_guardian_serve(int socket, pid_t owner, struct erg_error *err)
{
    struct erg_error error = {0};
    struct watch watch = {0};
    int failed = erg_gpus_open(&watch.gpus, "all", &error);
    answer(socket, failed, false, &error);
    if (failed)
        return 0; /* the owner has got the reason */
    watch.claims = erg_xcalloc(watch.gpus->count, sizeof *watch.claims);
    watch.clocks = erg_xcalloc(watch.gpus->count, sizeof *watch.clocks);
    watch.limits_mw = erg_xcalloc(watch.gpus->count, sizeof *watch.limits_mw);
    watch.errors = erg_xcalloc(watch.gpus->count, sizeof *watch.errors);
    int status = serve(&watch, socket, owner) ? 0 : restore_all(&watch, err);
    for (size_t i = 0; i < watch.gpus->count; i++)
        if (watch.claims[i])
            close(watch.claims[i]);
    erg_gpus_close(watch.gpus);
    free(watch.claims);
    free(watch.clocks);
    free(watch.limits_mw);
    free(watch.errors);
    return status;
}
