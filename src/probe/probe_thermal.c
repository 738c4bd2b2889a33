/* ergon probe --thermal: records or takes a recording, fits a chassis, and prints the result. */
#include "probe/probe_thermal.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/json.h"
#include "io/print.h"
#include "probe/heat_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double usual_turn_s = 120;

/* Everything of one call. */
struct heat_call {
    const struct erg_probe_thermal *request;
    const char *path; /* of the recording */
    char name[128];   /* of the fitted chassis */
    char made[64];    /* a folder for one that is not kept, and that */
    char lost[96];
    struct erg_heat_tracks tracks;
    struct erg_heat_fit *fit;    /* NULL: nothing was fitted */
    struct erg_chassis *base;    /* NULL: none was named */
    struct erg_heat_error error; /* of the base */
};

/* ---- the recording ---- */

static int emulate(const struct heat_call *at, double turn_s, struct erg_error *err)
{
    const struct erg_heat_turns turns = {fmin(10, turn_s), turn_s, turn_s};
    const double seconds = turns.begin_s + 2 * turn_s * at->base->gpus;
    struct erg_gpu *gpu;
    if (erg_gpu_load(&gpu, "H200-SXM", err) != 0)
        return -1;
    int status = erg_heat_emulate(at->path, at->base, gpu, erg_heat_in_turns, &turns, seconds,
                                  at->request->seed, err);
    erg_gpu_free(gpu);
    return status;
}

static int measure(const struct heat_call *at, double turn_s, struct erg_error *err)
{
    const struct erg_probe_thermal *request = at->request;
    const char *const probe[] = {request->program ? request->program : "ergon", "probe", "--quiet",
                                 NULL};
    return erg_heat_measure(at->path, request->command ? request->command : probe, turn_s, err);
}

static int record(struct heat_call *at, struct erg_error *err)
{
    const struct erg_probe_thermal *request = at->request;
    const double turn_s = isnan(request->turn_s) ? usual_turn_s : request->turn_s;
    at->path = request->keep;
    if (!at->path) {
        const char *folder = getenv("TMPDIR");
        snprintf(at->made, sizeof at->made, "%s/ergon-probe-XXXXXX",
                 folder && *folder ? folder : "/tmp");
        if (!mkdtemp(at->made)) {
            at->made[0] = '\0';
            return erg_fail(err, ERG_FAILED,
                            "making a folder in $TMPDIR or /tmp for the recording failed");
        }
        snprintf(at->lost, sizeof at->lost, "%s/heat.rec", at->made);
        at->path = at->lost;
    }
    return request->emulated ? emulate(at, turn_s, err) : measure(at, turn_s, err);
}

/* ---- what was found ---- */

static const char *position_of(const struct erg_chassis_slot *slot)
{
    return slot->position == ERG_SLOT_FRONT ? "front" : "rear";
}

static void print_slots(FILE *out, const struct heat_call *at, const struct erg_chassis *chassis)
{
    static const char *const heads[] = {"GPU",      "position", "lane", "die K/W",
                                        "sink K/W", "air",      ""};
    struct erg_table table = {.columns = 7};
    erg_print_heads(&table, heads, 7);
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const struct erg_chassis_slot *slot = &chassis->slots[g];
        erg_table_add(&table, "%d %s", at->tracks.infos[g].index, at->tracks.infos[g].name);
        erg_table_add(&table, "%s", position_of(slot));
        erg_table_add(&table, "%d", slot->lane);
        erg_table_add(&table, "%.4f", slot->die_k_per_w);
        erg_table_add(&table, "%.4f", slot->sink_k_per_w);
        erg_table_add(&table, "%.1f C", chassis->inlet_c + chassis->slots[slot->sink].preheat_k);
        erg_table_add(&table, "%s", "");
    }
    erg_print_table(out, &table, "");
}

static void say_coupling(FILE *out, const struct erg_heat_fit *fit)
{
    const struct erg_heat_survey *survey = &fit->survey;
    if (survey->coupling == ERG_HEAT_COUPLED)
        fprintf(out, "a watt of a front GPU warms the air of the rear one in its lane by %.4f K\n",
                fit->chassis.air_k_per_w);
    else if (survey->coupling == ERG_HEAT_APART)
        fprintf(out, "no coupling seen: a watt of one GPU warms no other by more than %.4f K\n",
                survey->least_k_per_w);
    else if (survey->pair_count)
        fprintf(
            out,
            "the coupling of GPUs was not seen, since they worked at the same times; front and "
            "rear are guessed from how much they warm up, with %.4f K/W, and lanes are unknown\n",
            fit->chassis.air_k_per_w);
    else
        fprintf(out, "the coupling of GPUs was not seen, since they worked at the same times\n");
}

static void print_error(FILE *out, const char *what, const struct erg_heat_error *error)
{
    fprintf(out, "%s: RMS %.2f K, at most %.1f K, of %zu readings\n", what, error->rms_k,
            error->worst_k, error->count);
}

static void print_found(FILE *out, const struct heat_call *at)
{
    const struct erg_heat_fit *fit = at->fit;
    const struct erg_chassis *chassis = fit ? &fit->chassis : at->base;
    print_slots(out, at, chassis);
    fprintf(out, "time constants: die %.1f s, sink %.0f s\n", chassis->die_time_s,
            chassis->sink_time_s);
    if (!fit) {
        print_error(out, "this recording", &at->error);
        return;
    }
    say_coupling(out, fit);
    print_error(out, "fitted", &fit->fitted);
    print_error(out, "held out", &fit->held_out);
}

static json_t *error_document(const struct erg_heat_error *error)
{
    return erg_json_pack("{s:o, s:o, s:o}", "readings", json_integer((json_int_t)error->count),
                         "rms_k", erg_json_number(error->rms_k), "worst_k",
                         erg_json_number(error->count ? error->worst_k : NAN));
}

static void add_fit(json_t *root, const struct erg_heat_fit *fit)
{
    static const char *const words[] = {"apart", "coupled", "unknown"};
    const bool seen = fit->survey.coupling == ERG_HEAT_COUPLED;
    json_object_set_new(root, "coupling", erg_json_new_string(words[fit->survey.coupling]));
    json_object_set_new(root, "positions_guessed",
                        json_boolean(!seen && fit->survey.pair_count > 0));
    json_object_set_new(root, "fitted", error_document(&fit->fitted));
    json_object_set_new(root, "held_out", error_document(&fit->held_out));
}

static void print_json(FILE *out, const struct heat_call *at)
{
    const struct erg_chassis *chassis = at->fit ? &at->fit->chassis : at->base;
    json_t *slots = json_array();
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const struct erg_chassis_slot *slot = &chassis->slots[g];
        json_array_append_new(
            slots, erg_json_pack(
                       "{s:i, s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "index",
                       at->tracks.infos[g].index, "gpu", at->tracks.infos[g].name, "uuid",
                       at->tracks.infos[g].uuid, "position", position_of(slot), "lane", slot->lane,
                       "die_k_per_w", erg_json_number(slot->die_k_per_w), "sink_k_per_w",
                       erg_json_number(slot->sink_k_per_w), "air_c",
                       erg_json_number(chassis->inlet_c + chassis->slots[slot->sink].preheat_k)));
    }
    json_t *root = erg_json_pack(
        "{s:i, s:s, s:o, s:o, s:o, s:o}", "schema_version", 1, "chassis", chassis->name, "slots",
        slots, "air_k_per_w", erg_json_number(chassis->air_k_per_w), "die_time_s",
        erg_json_number(chassis->die_time_s), "sink_time_s", erg_json_number(chassis->sink_time_s));
    if (at->fit)
        add_fit(root, at->fit);
    else
        json_object_set_new(root, "explained", error_document(&at->error));
    erg_print_json(out, root);
}

static int write_chassis(struct heat_call *at, struct erg_error *err)
{
    struct erg_heat_fit *fit = at->fit;
    struct erg_text heading = {0}, confidence = {0};
    erg_text_printf(
        &heading, "Fitted by ergon probe --thermal to %.0f s of %zu x %s%s.\nThe limit is %s.",
        (double)at->tracks.count * at->tracks.step_s, at->tracks.gpus, at->tracks.infos[0].name,
        at->tracks.is_virtual ? ", emulated" : "",
        isnan(at->tracks.hold_c) ? "assumed" : "where the GPUs say that their clocks fall");
    erg_text_printf(&confidence, "%s: RMS %.2f K where fitted, %.2f K where not, at most %.1f K",
                    at->tracks.is_virtual ? "fitted to emulated GPUs" : "fitted", fit->fitted.rms_k,
                    fit->held_out.rms_k, fit->held_out.worst_k);
    fit->chassis.confidence = confidence.data;
    int status = erg_chassis_write(&fit->chassis, at->request->calibrate, heading.data, err);
    erg_text_release(&heading);
    erg_text_release(&confidence);
    return status;
}

/* As its file, without folder and ".yaml". */
static void name_chassis(struct heat_call *at)
{
    const char *file = at->request->calibrate, *slash = file ? strrchr(file, '/') : NULL;
    file = slash ? slash + 1 : file;
    if (file)
        snprintf(at->name, sizeof at->name, "%.*s", (int)(strlen(file) - strlen(".yaml")), file);
    else
        snprintf(at->name, sizeof at->name, "measured");
}

static int conclude(struct heat_call *at, struct erg_error *err)
{
    const struct erg_probe_thermal *request = at->request;
    if (erg_heat_tracks_read(&at->tracks, at->path, err) != 0)
        return -1;
    if (request->from && at->base)
        return erg_heat_explain(at->base, &at->tracks, NULL, &at->error, err);
    const double until_s = isnan(request->until_s) ? 0 : request->until_s;
    if (until_s >= (double)at->tracks.count * at->tracks.step_s)
        return erg_fail(err, ERG_FAILED,
                        "--until: expected less than the %.0f s of the recording, got %g",
                        (double)at->tracks.count * at->tracks.step_s, until_s);
    name_chassis(at);
    at->fit = erg_xcalloc(1, sizeof *at->fit);
    if (erg_heat_fit(at->fit, &at->tracks, until_s, at->name, err) != 0)
        return -1;
    return request->calibrate ? write_chassis(at, err) : 0;
}

static int load_base(struct heat_call *at, struct erg_error *err)
{
    const struct erg_probe_thermal *request = at->request;
    const char *name = request->base ? request->base : request->emulated ? "hgx-8-air" : NULL;
    return name ? erg_chassis_load(&at->base, name, err) : 0;
}

int erg_probe_thermal(FILE *text, FILE *json, const struct erg_probe_thermal *request,
                      struct erg_error *err)
{
    struct heat_call at = {.request = request, .path = request->from};
    int status = load_base(&at, err) || (!request->from && record(&at, err)) || conclude(&at, err);
    if (!status) {
        print_json(json, &at);
        print_found(text, &at);
    }
    if (at.made[0]) {
        unlink(at.path);
        rmdir(at.made);
    }
    erg_heat_tracks_release(&at.tracks);
    erg_chassis_free(at.base);
    free(at.fit);
    return status ? -1 : 0;
}
