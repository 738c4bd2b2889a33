/*
 * Locks SM clocks and unlocks them, even if the guardian ends first; through the driver or through
 * the daemon's leases.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "telemetry/clocks.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "telemetry/daemon_wire.h"
#include "telemetry/gpu_internal.h"
#include "telemetry/guardian.h"
#include "telemetry/knobs.h"
#include "telemetry/leases.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/*
 * How long a clock may take to settle. A GPU that idles stays low for good, so the wait is short.
 */
static const int64_t below_ns = 50000000, above_ns = 500000000, poll_ns = 5000000;

/* Some GPUs report a clock slightly different from the one in their list. */
enum { BESIDE_MHZ = 5 };

struct erg_clocks {
    struct erg_gpus *gpus;
    struct erg_guardian *guardian; /* NULL with leases */
    struct erg_leases *leased;     /* NULL: uses the driver directly */
    bool only_direct;              /* use no daemon */
    struct clock_state {
        struct erg_clock_list list; /* empty until first needed */
        bool locked, watched;       /* by the guardian, as far as is known */
        bool limited;               /* the power limit was changed */
        int64_t before_mw;          /* that limit; 0: it was never set */
    } * items;
    pthread_mutex_t lock; /* protects items: a thread unlocks them if the guardian ends */
    bool unguarded;       /* written with the lock held, read by any thread, atomically */
    pthread_t lookout;
    int stop; /* eventfd that ends the thread */
};

int erg_clocks_supported(struct erg_gpus *gpus, size_t gpu, struct erg_clock_list *list,
                         struct erg_error *err)
{
    const struct erg_gpu_info *info = &gpus->items[gpu].info;
    assert(gpu < erg_gpus_count(gpus));
    if (info->trouble[0])
        return erg_fail(err, ERG_NO_DEVICE, "asking for the clocks of GPU %d: %s", info->index,
                        info->trouble);
    if (!gpus->vendor->clocks)
        return erg_fail(err, ERG_NO_DEVICE,
                        "asking for the clocks of GPU %d: those of %s GPUs cannot be locked, "
                        "expected a GPU of NVIDIA's",
                        info->index, info->vendor);
    return gpus->vendor->clocks->supported(&gpus->items[gpu], list, err);
}

void erg_clock_list_release(struct erg_clock_list *list)
{
    free(list->clocks_mhz);
    *list = (struct erg_clock_list){0};
}

/* Call with the lock held. */
static int unlock(struct erg_clocks *clocks, size_t gpu, struct erg_error *err)
{
    assert(gpu < erg_gpus_count(clocks->gpus));
    if (clocks->items[gpu].locked &&
        (clocks->leased ? erg_leases_reset(clocks->leased, gpu, ERG_KNOB_CLOCK, err)
                        : clocks->gpus->vendor->clocks->unlock(&clocks->gpus->items[gpu], err)))
        return -1;
    clocks->items[gpu].locked = false;
    return 0;
}

/* Call with the lock held. */
static int unlimit(struct erg_clocks *clocks, size_t gpu, struct erg_error *err)
{
    struct clock_state *state = &clocks->items[gpu];
    int driver;
    if (state->limited &&
        (clocks->leased ? erg_leases_reset(clocks->leased, gpu, ERG_KNOB_POWER, err)
                        : erg_knob_set(clocks->gpus, gpu, ERG_KNOB_POWER, state->before_mw,
                                       state->before_mw, &driver, err)))
        return -1;
    state->limited = false;
    return 0;
}

/* Call with the lock held: resets everything that was set. */
static int give_back(struct erg_clocks *clocks, size_t gpu, struct erg_error *err)
{
    int clock = unlock(clocks, gpu, err);
    return unlimit(clocks, gpu, clock ? NULL : err) || clock ? -1 : 0;
}

static void release(struct erg_clocks *clocks)
{
    for (size_t i = 0; i < erg_gpus_count(clocks->gpus); i++)
        erg_clock_list_release(&clocks->items[i].list);
    if (clocks->stop >= 0)
        close(clocks->stop);
    erg_gpus_close(clocks->gpus);
    pthread_mutex_destroy(&clocks->lock);
    free(clocks->items);
    free(clocks);
}

/*
 * The thread: once the guardian has ended, no process would unlock after a crash, so it unlocks
 * all.
 */
static void *look_out(void *context)
{
    struct erg_clocks *clocks = context;
    char reason[400];
    if (clocks->leased ? !erg_leases_await_end(clocks->leased, clocks->stop, reason, sizeof reason)
                       : !erg_guardian_await_end(clocks->guardian, clocks->stop))
        return NULL;
    pthread_mutex_lock(&clocks->lock);
    __atomic_store_n(&clocks->unguarded, true, __ATOMIC_RELAXED);
    if (clocks->leased) {
        /* The daemon has already reset GPUs whose lease ended; this resets the others. */
        for (size_t i = 0; i < erg_gpus_count(clocks->gpus); i++) {
            give_back(clocks, i, NULL);
            clocks->items[i].locked = clocks->items[i].limited = false;
        }
        pthread_mutex_unlock(&clocks->lock);
        erg_log(ERG_LOG_WARNING,
                "the daemon of clocks has ended or has taken a lease back (%s): all clocks are "
                "unlocked, and none is locked any more",
                reason);
        return NULL;
    }
    size_t left = 0, count = erg_gpus_count(clocks->gpus);
    for (size_t i = 0; i < count; i++)
        left += give_back(clocks, i, NULL) != 0;
    pthread_mutex_unlock(&clocks->lock);
    if (left)
        erg_log(ERG_LOG_WARNING,
                "the guardian of the clocks has ended before this run, and %zu GPU%s cannot be "
                "unlocked; 'nvidia-smi -rgc' unlocks by hand",
                left, erg_plural(left));
    else
        erg_log(ERG_LOG_WARNING, "the guardian of the clocks has ended before this run: all clocks "
                                 "are unlocked, and none is locked any more");
    return NULL;
}

static void dismiss(struct erg_clocks *clocks)
{
    if (clocks->guardian)
        erg_guardian_dismiss(clocks->guardian);
    if (clocks->leased)
        erg_leases_close(clocks->leased);
}

/*
 * Chooses who sets the clocks. Users other than root use the daemon if there is one, even if the
 * driver would allow them: the daemon does not see their own claims.
 */
static int choose(struct erg_clocks *clocks, struct erg_error *err)
{
    const char *daemon = secure_getenv("ERGON_DAEMON");
    clocks->only_direct = daemon && strcmp(daemon, "none") == 0;
    if (daemon && !clocks->only_direct)
        return erg_leases_open(&clocks->leased, daemon, clocks->gpus, err);
    if (!clocks->only_direct && geteuid() != 0 &&
        erg_leases_open(&clocks->leased, ERG_WIRE_DEFAULT_SOCKET, clocks->gpus, NULL) == 0)
        return 0;
    clocks->leased = NULL;
    return erg_guardian_start(&clocks->guardian, err);
}

int erg_clocks_open(struct erg_clocks **out, struct erg_gpus *gpus, struct erg_error *err)
{
    struct erg_clocks *clocks = erg_xcalloc(1, sizeof *clocks);
    pthread_mutex_init(&clocks->lock, NULL);
    clocks->gpus = erg_gpus_retain(gpus);
    clocks->items = erg_xcalloc(erg_gpus_count(gpus), sizeof *clocks->items);
    clocks->stop = eventfd(0, EFD_CLOEXEC);
    if (choose(clocks, err) != 0) {
        release(clocks);
        return -1;
    }
    int code = clocks->stop < 0 ? errno : pthread_create(&clocks->lookout, NULL, look_out, clocks);
    if (code) {
        dismiss(clocks);
        release(clocks);
        return erg_fail(err, ERG_FAILED, "preparing to lock clocks: no thread (%s)",
                        strerror(code));
    }
    *out = clocks;
    return 0;
}

static int check_supported(const struct erg_gpu_info *info, const struct erg_clock_list *list,
                           int clock_mhz, struct erg_error *err)
{
    size_t i = erg_clock_not_below(list->clocks_mhz, list->count, clock_mhz);
    if (i < list->count && list->clocks_mhz[i] == clock_mhz)
        return 0;
    assert(list->count > 0 && i <= list->count);
    if (i == 0 || i == list->count)
        return erg_fail(err, ERG_FAILED,
                        "locking the SM clock of GPU %d (%s) at %d MHz: it has clocks from %d to "
                        "%d MHz only",
                        info->index, info->name, clock_mhz, list->clocks_mhz[0],
                        list->clocks_mhz[list->count - 1]);
    return erg_fail(err, ERG_FAILED,
                    "locking the SM clock of GPU %d (%s) at %d MHz: it has no such clock, the "
                    "nearest are %d and %d MHz",
                    info->index, info->name, clock_mhz, list->clocks_mhz[i - 1],
                    list->clocks_mhz[i]);
}

/* Reads the clock until it is the requested one, or the wait is over. */
static int verify(const struct erg_clocks *clocks, size_t gpu, int wanted_mhz,
                  enum erg_clock_seen *seen, struct erg_error *err)
{
    const struct erg_open_gpu *item = &clocks->gpus->items[gpu];
    int64_t start_ns = erg_now_ns(), waited_ns = 0;
    int clock_mhz = 0;
    while (waited_ns < above_ns) {
        if (clocks->gpus->vendor->clocks->read(item, &clock_mhz, err) != 0)
            return -1;
        waited_ns = erg_now_ns() - start_ns;
        bool held = abs(clock_mhz - wanted_mhz) <= BESIDE_MHZ;
        if (held || (clock_mhz < wanted_mhz && waited_ns >= below_ns)) {
            *seen = held ? ERG_CLOCK_HELD : ERG_CLOCK_BELOW;
            return 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = poll_ns}, NULL);
    }
    return erg_fail(err, ERG_NO_DEVICE,
                    "locking the SM clock of GPU %d (%s) at %d MHz: the driver accepted that, but "
                    "%.1f s later it runs at %d MHz, expected a GPU that follows its lock and "
                    "whose clock no other program sets",
                    item->info.index, item->info.name, wanted_mhz, (double)waited_ns * 1e-9,
                    clock_mhz);
}

/* Call with the lock held. */
static int prepare(struct erg_clocks *clocks, size_t gpu, int clock_mhz, struct erg_error *err)
{
    struct clock_state *state = &clocks->items[gpu];
    if (!state->list.count && erg_clocks_supported(clocks->gpus, gpu, &state->list, err) != 0)
        return -1;
    return check_supported(&clocks->gpus->items[gpu].info, &state->list, clock_mhz, err);
}

/* Call with the lock held; `seen` NULL: without a check. */
static int apply(struct erg_clocks *clocks, size_t gpu, int clock_mhz, enum erg_clock_seen *seen,
                 struct erg_error *err)
{
    const struct erg_open_gpu *item = &clocks->gpus->items[gpu];
    /* Set before the call, so that a lock that fails halfway is undone, too. */
    clocks->items[gpu].locked = true;
    if ((clocks->leased ? erg_leases_set(clocks->leased, gpu, ERG_KNOB_CLOCK, clock_mhz, err)
                        : clocks->gpus->vendor->clocks->lock(item, clock_mhz, err)) == 0 &&
        (!seen || verify(clocks, gpu, clock_mhz, seen, err) == 0))
        return 0;
    unlock(clocks, gpu, NULL);
    return -1;
}

/* Call with the lock held: the guardian or the daemon resets the GPU when this process ends. */
static int watch(struct erg_clocks *clocks, size_t gpu, enum erg_knob knob, struct erg_error *err)
{
    bool refused = false;
    struct erg_error direct, leased;
    struct erg_leases *found;
    const char *uuid = clocks->gpus->items[gpu].info.uuid;
    if (clocks->leased)
        return erg_leases_take(clocks->leased, gpu, knob, err);
    if ((knob == ERG_KNOB_POWER
             ? erg_guardian_watch_limit(clocks->guardian, uuid, &refused, &direct)
             : erg_guardian_watch(clocks->guardian, uuid, &refused, &direct)) == 0)
        return 0;
    if (!refused || clocks->only_direct)
        return erg_fail(err, direct.status, "%s", direct.message);
    /* The driver refuses, and no daemon was present or requested. */
    if (erg_leases_open(&found, ERG_WIRE_DEFAULT_SOCKET, clocks->gpus, &leased) != 0)
        return erg_fail(err, ERG_NO_DEVICE, "%s; %s", direct.message, leased.message);
    erg_leases_close(found);
    return erg_fail(err, ERG_NO_DEVICE,
                    "%s; a daemon listens at '%s'; set ERGON_DAEMON to this path to use it",
                    direct.message, ERG_WIRE_DEFAULT_SOCKET);
}

/* Call with the lock held. */
static int lock(struct erg_clocks *clocks, size_t gpu, int clock_mhz, enum erg_clock_seen *seen,
                struct erg_error *err)
{
    if (prepare(clocks, gpu, clock_mhz, err) != 0 || watch(clocks, gpu, ERG_KNOB_CLOCK, err) != 0)
        return -1;
    clocks->items[gpu].watched = true;
    return apply(clocks, gpu, clock_mhz, seen, err);
}

int erg_clocks_lock(struct erg_clocks *clocks, size_t gpu, int clock_mhz, enum erg_clock_seen *seen,
                    struct erg_error *err)
{
    enum erg_clock_seen found = ERG_CLOCK_BELOW;
    pthread_mutex_lock(&clocks->lock);
    int status = lock(clocks, gpu, clock_mhz, &found, err);
    pthread_mutex_unlock(&clocks->lock);
    if (status == 0 && seen)
        *seen = found;
    return status;
}

int erg_clocks_try(struct erg_clocks *clocks, size_t gpu, struct erg_error *err)
{
    struct erg_clock_list list;
    if (erg_clocks_supported(clocks->gpus, gpu, &list, err) != 0)
        return -1;
    int highest_mhz = list.clocks_mhz[list.count - 1];
    erg_clock_list_release(&list);
    return erg_clocks_lock(clocks, gpu, highest_mhz, NULL, err) ||
                   erg_clocks_reset(clocks, gpu, err)
               ? -1
               : 0;
}

/*
 * Call with the lock held. Does not ask the guardian, since that would wait for another process. If
 * the guardian has ended unnoticed, the lookout thread unlocks as soon as it gets the lock.
 */
static int set(struct erg_clocks *clocks, size_t gpu, int clock_mhz, struct erg_error *err)
{
    assert(clocks->items[gpu].watched);
    if (clocks->unguarded)
        return erg_fail(err, ERG_NO_DEVICE,
                        "locking the SM clock of GPU %d at %d MHz: the guardian of the clocks, or "
                        "their lease, has ended, expected it to live as long as this process",
                        clocks->gpus->items[gpu].info.index, clock_mhz);
    return prepare(clocks, gpu, clock_mhz, err) || apply(clocks, gpu, clock_mhz, NULL, err) ? -1
                                                                                            : 0;
}

int erg_clocks_set(struct erg_clocks *clocks, size_t gpu, int clock_mhz, struct erg_error *err)
{
    pthread_mutex_lock(&clocks->lock);
    int status = set(clocks, gpu, clock_mhz, err);
    pthread_mutex_unlock(&clocks->lock);
    return status;
}

bool erg_clocks_guarded(const struct erg_clocks *clocks)
{
    return !__atomic_load_n(&clocks->unguarded, __ATOMIC_RELAXED);
}

int erg_clocks_reset(struct erg_clocks *clocks, size_t gpu, struct erg_error *err)
{
    pthread_mutex_lock(&clocks->lock);
    int status = unlock(clocks, gpu, err);
    pthread_mutex_unlock(&clocks->lock);
    return status;
}

/* ---- power limits ---- */

/* Call with the lock held. */
static int limit(struct erg_clocks *clocks, size_t gpu, int64_t limit_mw, struct erg_error *err)
{
    struct clock_state *state = &clocks->items[gpu];
    int64_t now_mw;
    int driver;
    if (clocks->unguarded)
        return erg_fail(err, ERG_NO_DEVICE,
                        "setting the power limit of GPU %d: the guardian of the clocks, or the "
                        "lease of it, has ended, expected it to live as long as this process",
                        clocks->gpus->items[gpu].info.index);
    if (!state->before_mw) {
        if (erg_knob_read(clocks->gpus, gpu, ERG_KNOB_POWER, &now_mw, err) != 0 ||
            watch(clocks, gpu, ERG_KNOB_POWER, err) != 0)
            return -1;
        state->before_mw = now_mw;
    }
    state->limited = true;
    if ((clocks->leased ? erg_leases_set(clocks->leased, gpu, ERG_KNOB_POWER, limit_mw, err)
                        : erg_knob_set(clocks->gpus, gpu, ERG_KNOB_POWER, limit_mw, limit_mw,
                                       &driver, err)) == 0)
        return 0;
    unlimit(clocks, gpu, NULL);
    return -1;
}

int erg_clocks_limit(struct erg_clocks *clocks, size_t gpu, int64_t limit_mw, struct erg_error *err)
{
    pthread_mutex_lock(&clocks->lock);
    int status = limit(clocks, gpu, limit_mw, err);
    pthread_mutex_unlock(&clocks->lock);
    return status;
}

int erg_clocks_close(struct erg_clocks *clocks, struct erg_error *err)
{
    if (!clocks)
        return 0;
    bool unlocked = true;
    int status = 0;
    bool mine = clocks->leased ? erg_leases_is_mine(clocks->leased)
                               : erg_guardian_is_mine(clocks->guardian);
    if (mine) { /* threads are not inherited by a child */
        erg_thread_wake(clocks->stop);
        pthread_join(clocks->lookout, NULL);
        for (size_t i = 0; i < erg_gpus_count(clocks->gpus); i++)
            if (give_back(clocks, i, err) != 0)
                unlocked = false;
    }
    if (unlocked || clocks->leased) /* the daemon keeps trying */
        dismiss(clocks);
    else
        status = erg_guardian_release(clocks->guardian, err);
    if (!unlocked && clocks->leased)
        status = -1;
    release(clocks);
    return status;
}
