/* Energy of CPUs and their memory from powercap (telemetry/rapl.h). */
#include "telemetry/rapl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A reading lags by up to one update of its counter, all lags being equally likely. So the error of
 * a difference of two is at most the energy of one update, and in 95 % of windows less than 1 -
 * sqrt(1 - 0.95) of it.
 */
static const double update_s = 1e-3, update_share = 0.7764;

/* Assumed ratio of the unseen power at a window's ends to its mean power. */
static const double peak = 2;

/* No package and no memory uses more: a counter that grows faster was reset. */
static const double most_w = 5e3, slack_s = 0.1;

/* A counter that does not move for this many updates is invalid: even a sleeping CPU uses more than
 * the counter's unit. */
static const int64_t still_ns = 500000000;

static const int64_t period_ns = 1000000000; /* between readings of the thread */

enum kind { CPU, DRAM, KINDS };

/* One counter. */
struct zone {
    char *path; /* of its energy_uj */
    enum kind kind;
    int64_t range_uj; /* it wraps to 0 after this */
    int64_t last_uj, last_ns;
    int64_t moved_ns; /* when a reading last differed from the previous one */
    bool valid;
    double sum_j;
};

struct erg_rapl {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* on the monotonic clock */
    pthread_t thread;
    bool started, stop;
    struct zone *items;
    size_t count, capacity;
    size_t zones[KINDS], unreadable[KINDS], runs[KINDS];
    bool warned[KINDS]; /* a counter stopped answering */
};

static const char *const owners[KINDS] = {[CPU] = "the CPUs", [DRAM] = "their memory"};

static bool read_number(const char *path, int64_t *value)
{
    char *text;
    long number;
    if (erg_file_read(path, 4096, &text, NULL, NULL) != 0)
        return false;
    text[strcspn(text, "\n")] = '\0';
    bool good = erg_parse_long(text, &number) && number >= 0;
    *value = number;
    free(text);
    return good;
}

/* Adds the zone in a folder if it is a package or a package's DRAM. */
static void add_zone(struct erg_rapl *rapl, const char *folder)
{
    char *name_path = erg_file_path(folder, "name"), *name = NULL;
    char *range_path = erg_file_path(folder, "max_energy_range_uj");
    struct zone zone = {.path = erg_file_path(folder, "energy_uj")};
    if (erg_file_read(name_path, 4096, &name, NULL, NULL) != 0)
        name = erg_xstrdup("");
    zone.kind = strncmp(name, "dram", 4) == 0 ? DRAM : CPU;
    bool ours = zone.kind == DRAM || strncmp(name, "package", 7) == 0;
    zone.valid =
        ours && read_number(range_path, &zone.range_uj) && read_number(zone.path, &zone.last_uj);
    zone.last_ns = zone.moved_ns = erg_now_ns();
    rapl->zones[zone.kind] += ours;
    rapl->unreadable[zone.kind] += ours && !zone.valid;
    if (zone.valid)
        ERG_PUSH(rapl, items, zone);
    else
        free(zone.path);
    free(name_path);
    free(range_path);
    free(name);
}

/* Whether the sum of a kind covers all packages. */
static bool is_whole(const struct erg_rapl *rapl, enum kind kind)
{
    return rapl->zones[kind] && !rapl->unreadable[kind];
}

/* An invalid reading; the reason is logged once. */
static void leave_out(struct erg_rapl *rapl, struct zone *zone, const char *reason)
{
    zone->valid = false;
    if (!rapl->warned[zone->kind])
        erg_log(ERG_LOG_WARNING,
                "the energy counter '%s' %s, so the energy of %s is unknown for that time",
                zone->path, reason, owners[zone->kind]);
    rapl->warned[zone->kind] = true;
}

/* Under the lock: reads all counters. */
static void follow(struct erg_rapl *rapl)
{
    bool anew[KINDS] = {false};
    for (size_t i = 0; i < rapl->count; i++) {
        struct zone *zone = &rapl->items[i];
        int64_t now_uj = 0;
        zone->valid = read_number(zone->path, &now_uj);
        if (!zone->valid) {
            leave_out(rapl, zone, "can no longer be read");
            continue;
        }
        int64_t now_ns = erg_now_ns(), moved_uj = now_uj - zone->last_uj;
        double moved_j = 1e-6 * (double)(moved_uj < 0 ? moved_uj + zone->range_uj : moved_uj);
        if (moved_j < 0 || moved_j > most_w * (1e-9 * (double)(now_ns - zone->last_ns) + slack_s))
            anew[zone->kind] = true;
        if (moved_uj)
            zone->moved_ns = now_ns;
        else if (now_ns - zone->moved_ns > still_ns)
            leave_out(rapl, zone, "stands still");
        zone->sum_j += moved_j;
        zone->last_uj = now_uj;
        zone->last_ns = now_ns;
    }
    for (size_t i = 0; i < rapl->count; i++)
        if (anew[rapl->items[i].kind])
            rapl->items[i].sum_j = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        if (anew[kind] && !rapl->runs[kind])
            erg_log(ERG_LOG_WARNING,
                    "an energy counter of %s was reset: the energy until then is unknown",
                    owners[kind]);
        rapl->runs[kind] += anew[kind];
    }
}

static void *run_thread(void *argument)
{
    struct erg_rapl *rapl = argument;
    pthread_mutex_lock(&rapl->lock);
    while (!rapl->stop) {
        int64_t until_ns = erg_now_ns() + period_ns;
        while (!rapl->stop && erg_condition_wait(&rapl->wake, &rapl->lock, until_ns))
            ;
        follow(rapl);
    }
    pthread_mutex_unlock(&rapl->lock);
    return NULL;
}

/* Lists the counters below `root`. */
static int list_zones(struct erg_rapl *rapl, const char *root, struct erg_error *err)
{
    DIR *listing = opendir(root);
    if (!listing)
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for CPU energy counters: '%s': %s; expected the powercap tree of "
                        "Linux",
                        root, strerror(errno));
    struct dirent *entry;
    /*
     * "intel-rapl:0" is a package, "intel-rapl:0:1" a zone of it. The same packages may appear
     * again as "intel-rapl-mmio:0", which is skipped.
     */
    while ((entry = readdir(listing)) != NULL)
        if (strncmp(entry->d_name, "intel-rapl:", 11) == 0) {
            char *folder = erg_file_path(root, entry->d_name);
            add_zone(rapl, folder);
            free(folder);
        }
    closedir(listing);
    size_t all = rapl->zones[CPU] + rapl->zones[DRAM];
    if (rapl->count && rapl->count < all)
        erg_log(ERG_LOG_WARNING,
                "%zu of the %zu energy counters of CPUs below '%s' cannot be read, so the energy "
                "of %s is unknown",
                all - rapl->count, all, root,
                !rapl->unreadable[DRAM]  ? owners[CPU]
                : !rapl->unreadable[CPU] ? owners[DRAM]
                                         : "the CPUs and their memory");
    if (is_whole(rapl, CPU) || is_whole(rapl, DRAM))
        return 0;
    if (all)
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for CPU energy counters: %zu of the %zu below '%s' cannot be read "
                        "by this user, expected read access to their energy_uj (usually root's)",
                        all - rapl->count, all, root);
    return erg_fail(err, ERG_NO_DEVICE,
                    "looking for CPU energy counters: '%s' has none, expected intel-rapl:0", root);
}

static int start_thread(struct erg_rapl *rapl, struct erg_error *err)
{
    int reason = erg_thread_start(&rapl->thread, run_thread, rapl);
    rapl->started = reason == 0;
    if (reason)
        return erg_fail(err, ERG_FAILED, "reading CPU energy counters: no thread for it (%s)",
                        strerror(reason));
    return 0;
}

int erg_rapl_open(struct erg_rapl **out, const char *root, struct erg_error *err)
{
    if (!root)
        root = getenv("ERGON_POWERCAP");
    if (!root)
        root = "/sys/class/powercap";
    struct erg_rapl *rapl = erg_xcalloc(1, sizeof *rapl);
    erg_condition_init(&rapl->wake);
    pthread_mutex_init(&rapl->lock, NULL);
    if (list_zones(rapl, root, err) != 0 || start_thread(rapl, err) != 0) {
        erg_rapl_close(rapl);
        return -1;
    }
    *out = rapl;
    return 0;
}

void erg_rapl_close(struct erg_rapl *rapl)
{
    if (!rapl)
        return;
    pthread_mutex_lock(&rapl->lock);
    rapl->stop = true;
    pthread_cond_signal(&rapl->wake);
    pthread_mutex_unlock(&rapl->lock);
    if (rapl->started)
        pthread_join(rapl->thread, NULL);
    for (size_t i = 0; i < rapl->count; i++)
        free(rapl->items[i].path);
    free(rapl->items);
    pthread_cond_destroy(&rapl->wake);
    pthread_mutex_destroy(&rapl->lock);
    free(rapl);
}

void erg_rapl_read(struct erg_rapl *rapl, struct erg_rapl_reading *reading)
{
    double sums_j[KINDS] = {0};
    bool valid[KINDS] = {is_whole(rapl, CPU), is_whole(rapl, DRAM)};
    pthread_mutex_lock(&rapl->lock);
    int64_t begin_ns = erg_now_ns();
    follow(rapl);
    int64_t end_ns = erg_now_ns();
    for (size_t i = 0; i < rapl->count; i++) {
        sums_j[rapl->items[i].kind] += rapl->items[i].sum_j;
        valid[rapl->items[i].kind] &= rapl->items[i].valid;
    }
    *reading = (struct erg_rapl_reading){.cpu_j = sums_j[CPU],
                                         .dram_j = sums_j[DRAM],
                                         .cpu_run = rapl->runs[CPU],
                                         .dram_run = rapl->runs[DRAM],
                                         .cpu_valid = valid[CPU],
                                         .dram_valid = valid[DRAM],
                                         .begin_ns = begin_ns,
                                         .end_ns = end_ns};
    pthread_mutex_unlock(&rapl->lock);
}

static void set_energy(double *energy_j, double *uncertainty_j, bool valid, double moved_j,
                       double outside_s, double time_s)
{
    double power_w = moved_j / time_s;
    *energy_j = valid ? moved_j : NAN;
    *uncertainty_j = valid ? peak * power_w * (update_share * update_s + outside_s) : NAN;
}

void erg_rapl_between(const struct erg_rapl_reading *before, const struct erg_rapl_reading *after,
                      struct erg_window_result *window)
{
    double time_s = 1e-9 * (double)(after->end_ns - before->begin_ns);
    double outside_s = time_s - 1e-9 * (double)(window->end_ns - window->begin_ns);
    set_energy(&window->cpu_j, &window->cpu_uncertainty_j,
               before->cpu_valid && after->cpu_valid && before->cpu_run == after->cpu_run,
               after->cpu_j - before->cpu_j, outside_s, time_s);
    set_energy(&window->dram_j, &window->dram_uncertainty_j,
               before->dram_valid && after->dram_valid && before->dram_run == after->dram_run,
               after->dram_j - before->dram_j, outside_s, time_s);
}
