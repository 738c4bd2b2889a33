/* Events of a live cluster, in the columns of the simulator's events.csv. */
#include "cluster/live/controller_internal.h"

#include "cluster/simulate/results.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const off_t most_bytes = 64 << 20;

static void add(struct erg_controller *controller, size_t i, enum erg_record_kind kind,
                const struct erg_placement *gpus)
{
    const struct erg_managed_job *record = &controller->records[i];
    const struct erg_scheduler *scheduler = controller->scheduler;
    struct erg_event_row row = {
        .at_s = scheduler->now_s, .kind = kind, .job = record->token, .node = -1};
    if (gpus && gpus->count > 0) {
        const int type = scheduler->occupancy->type_of[gpus->slices[0].node];
        row.type = scheduler->fleet->types[type].name;
        row.nodes = gpus->count;
        row.gpus_per_node = __builtin_popcountll(gpus->slices[0].gpus);
        row.point = record->point;
        row.slices = gpus->slices;
        row.slices_count = gpus->count;
    }
    erg_event_row_add(&controller->events, &row);
}

void erg_controller_node_event(struct erg_controller *controller, int node,
                               enum erg_live_node_state before, enum erg_live_node_state is)
{
    const bool fails = is == ERG_NODE_DOWN, repaired = before == ERG_NODE_DOWN;
    if (controller->setup.dry_run ||
        (!fails && !repaired && is != ERG_NODE_OFF && before != ERG_NODE_OFF))
        return;
    erg_event_row_add(&controller->events,
                      &(struct erg_event_row){.at_s = controller->scheduler->now_s,
                                              .kind = fails                ? ERG_RECORD_FAILURE
                                                      : repaired           ? ERG_RECORD_REPAIR
                                                      : is == ERG_NODE_OFF ? ERG_RECORD_OFF
                                                                           : ERG_RECORD_WAKE,
                                              .job = "",
                                              .node = node});
}

static bool is_over(enum erg_live_phase phase)
{
    return phase == ERG_PHASE_ENDED || phase == ERG_PHASE_CANCELLED;
}

/* Rows that release GPUs come first, so that no row gives a GPU to two jobs. */
static void add_leaving(struct erg_controller *controller, size_t i)
{
    const struct erg_managed_job *record = &controller->records[i];
    struct erg_live_track *track = &controller->tracks[i];
    const bool had = track->shown.count > 0, asked = track->shown_phase == ERG_PHASE_STOPPING;
    if (!track->is_shown || (had && erg_placement_equal(&track->shown, &record->actual)))
        return;
    if (is_over(record->phase) && !is_over(track->shown_phase))
        add(controller, i, ERG_RECORD_END, &track->shown);
    else if (had && record->actual.count > 0)
        add(controller, i, ERG_RECORD_RELEASE, NULL);
    else if (had)
        add(controller, i, asked ? ERG_RECORD_SUSPEND : ERG_RECORD_EVICT,
            asked ? NULL : &track->shown);
    track->shown.count = 0;
}

static void add_coming(struct erg_controller *controller, size_t i)
{
    const struct erg_managed_job *record = &controller->records[i];
    struct erg_live_track *track = &controller->tracks[i];
    if (!track->is_shown && !is_over(record->phase)) {
        add(controller, i, ERG_RECORD_SUBMIT, NULL);
        track->is_shown = true;
    }
    track->shown_phase = record->phase;
    if (!track->is_shown || record->actual.count == 0 || track->shown.count > 0)
        return;
    add(controller, i, ERG_RECORD_START, &record->actual);
    erg_placement_assign(&track->shown, &record->actual);
}

/* Each controller starts a new file with the whole present state, and again after some time; the
 * previous file is kept. */
static int begin_file(struct erg_controller *controller, const char *path, struct erg_error *err)
{
    struct erg_text header = {0};
    char *before = erg_file_path(controller->folder, "events.before.csv");
    int result = 0;
    if (rename(path, before) != 0 && errno != ENOENT)
        result = erg_fail(err, ERG_FAILED, "renaming '%s': %s", path, strerror(errno));
    erg_event_header(&header);
    result = result || erg_file_write(path, header.data, header.count, err);
    for (size_t i = 0; result == 0 && i < controller->count; i++) {
        controller->tracks[i].is_shown = false;
        controller->tracks[i].shown.count = 0;
    }
    controller->events_begun = result == 0;
    erg_text_release(&header);
    free(before);
    return result;
}

static int append(struct erg_controller *controller, const char *path, struct erg_error *err)
{
    struct erg_text *events = &controller->events;
    struct stat info;
    int file = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(errno));
    int result = 0;
    while (result == 0 && events->count > 0)
        result = erg_file_write_some(file, events);
    if (result != 0)
        erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(errno));
    else if (fstat(file, &info) == 0 && info.st_size > most_bytes)
        controller->events_begun = false;
    close(file);
    return result;
}

void erg_controller_write_events(struct erg_controller *controller)
{
    struct erg_error why = {0};
    if (controller->setup.dry_run)
        return;
    char *path = erg_file_path(controller->folder, "events.csv");
    int result = controller->events_begun ? 0 : begin_file(controller, path, &why);
    for (size_t i = 0; result == 0 && i < controller->count; i++)
        if (controller->tracks[i].job >= 0)
            add_leaving(controller, i);
    for (size_t i = 0; result == 0 && i < controller->count; i++)
        if (controller->tracks[i].job >= 0)
            add_coming(controller, i);
    if (result == 0 && controller->events.count > 0)
        result = append(controller, path, &why);
    if (result != 0) { /* the next file starts with the whole state */
        if (!controller->events_late)
            erg_controller_note(controller, "%s", why.message);
        controller->events_begun = false;
    }
    controller->events_late = result != 0;
    controller->events.count = 0;
    free(path);
}
