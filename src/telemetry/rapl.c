#include "telemetry/rapl.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A reading lags by anything up to one update of its counter, all lags being equally likely. So the
 * difference of two is off by at most the energy of one update, and in 95 % of windows by less than
 * 1 - sqrt(1 - 0.95) of it.
 */
static const double update_s = 1e-3, update_share = 0.7764;

/* Power at a window's ends, which is not seen, over its mean. */
static const double peak = 2;

/* One counter. */
struct zone {
    char *path; /* of its energy_uj */
    bool dram;
    int64_t range_uj; /* it goes from this back to 0 */
    int64_t last_uj;
    bool valid;
    double sum_j;
};

struct erg_rapl {
    pthread_mutex_t lock;
    struct zone *items;
    size_t count, capacity;
    bool has_cpu, has_dram;
};

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

static char *path_in(const char *folder, const char *name)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", folder, name);
    return path.data;
}

/* Adds the zone in a folder when it is a package or a package's DRAM. */
static void add_zone(struct erg_rapl *rapl, const char *folder, size_t *unreadable)
{
    char *name_path = path_in(folder, "name"), *name = NULL;
    char *range_path = path_in(folder, "max_energy_range_uj");
    struct zone zone = {.path = path_in(folder, "energy_uj")};
    if (erg_file_read(name_path, 4096, &name, NULL, NULL) != 0)
        name = erg_xstrdup("");
    zone.dram = strncmp(name, "dram", 4) == 0;
    bool ours = zone.dram || strncmp(name, "package", 7) == 0;
    zone.valid =
        ours && read_number(range_path, &zone.range_uj) && read_number(zone.path, &zone.last_uj);
    *unreadable += ours && !zone.valid;
    if (zone.valid) {
        rapl->has_dram |= zone.dram;
        rapl->has_cpu |= !zone.dram;
        ERG_PUSH(rapl, items, zone);
    } else {
        free(zone.path);
    }
    free(name_path);
    free(range_path);
    free(name);
}

int erg_rapl_open(struct erg_rapl **out, const char *root, struct erg_error *err)
{
    if (!root)
        root = getenv("ERGON_POWERCAP");
    if (!root)
        root = "/sys/class/powercap";
    DIR *listing = opendir(root);
    if (!listing)
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for CPU energy counters: '%s': %s; expected the powercap tree of "
                        "Linux",
                        root, strerror(errno));
    struct erg_rapl *rapl = erg_xcalloc(1, sizeof *rapl);
    pthread_mutex_init(&rapl->lock, NULL);
    struct dirent *entry;
    size_t unreadable = 0;
    /* "intel-rapl:0" is a package, "intel-rapl:0:1" a zone of it. The same packages may show up
     * once more as "intel-rapl-mmio:0", which is left out. */
    while ((entry = readdir(listing)) != NULL)
        if (strncmp(entry->d_name, "intel-rapl:", 11) == 0) {
            char *folder = path_in(root, entry->d_name);
            add_zone(rapl, folder, &unreadable);
            free(folder);
        }
    closedir(listing);
    if (rapl->count == 0) {
        erg_rapl_close(rapl);
        if (unreadable)
            return erg_fail(err, ERG_NO_DEVICE,
                            "looking for CPU energy counters: the %zu below '%s' cannot be read by "
                            "this user, expected read access to their energy_uj (usually root's)",
                            unreadable, root);
        return erg_fail(err, ERG_NO_DEVICE,
                        "looking for CPU energy counters: '%s' has none, expected intel-rapl:0",
                        root);
    }
    *out = rapl;
    return 0;
}

void erg_rapl_close(struct erg_rapl *rapl)
{
    if (!rapl)
        return;
    for (size_t i = 0; i < rapl->count; i++)
        free(rapl->items[i].path);
    free(rapl->items);
    pthread_mutex_destroy(&rapl->lock);
    free(rapl);
}

void erg_rapl_read(struct erg_rapl *rapl, struct erg_rapl_reading *reading)
{
    *reading = (struct erg_rapl_reading){.cpu_valid = rapl->has_cpu, .dram_valid = rapl->has_dram};
    /* Locked as a whole: a wrap must be seen by one reader only. */
    pthread_mutex_lock(&rapl->lock);
    reading->begin_ns = erg_now_ns();
    for (size_t i = 0; i < rapl->count; i++) {
        struct zone *zone = &rapl->items[i];
        int64_t now_uj = 0;
        zone->valid = read_number(zone->path, &now_uj);
        if (zone->valid) {
            int64_t moved_uj = now_uj - zone->last_uj;
            zone->sum_j += 1e-6 * (double)(moved_uj < 0 ? moved_uj + zone->range_uj : moved_uj);
            zone->last_uj = now_uj;
        }
        *(zone->dram ? &reading->dram_j : &reading->cpu_j) += zone->sum_j;
        *(zone->dram ? &reading->dram_valid : &reading->cpu_valid) &= zone->valid;
    }
    reading->end_ns = erg_now_ns();
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
                      int64_t begin_ns, int64_t end_ns, struct erg_rapl_energy *energy)
{
    double time_s = 1e-9 * (double)(after->end_ns - before->begin_ns);
    double outside_s = time_s - 1e-9 * (double)(end_ns - begin_ns);
    set_energy(&energy->cpu_j, &energy->cpu_uncertainty_j, before->cpu_valid && after->cpu_valid,
               after->cpu_j - before->cpu_j, outside_s, time_s);
    set_energy(&energy->dram_j, &energy->dram_uncertainty_j,
               before->dram_valid && after->dram_valid, after->dram_j - before->dram_j, outside_s,
               time_s);
}
