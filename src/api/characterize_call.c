/* Studies run in a folder, or read back from it, with their figures and findings. */
#include "api/characterize_call.h"

#include "api/measure_point.h"
#include "characterize/emulate_point.h"

#include "base/text.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the input ---- */

enum { MOST_FIGURES = 16 };

static int parse_figures(int *numbers, size_t *count, const char *text, struct erg_error *err)
{
    *count = 0;
    for (const char *rest = text; rest && *rest; rest += strcspn(rest, ","), rest += *rest == ',') {
        char *end;
        long number = strtol(rest, &end, 10);
        if (end == rest || (*end && *end != ',') || !erg_study_has_figure(number) ||
            *count == MOST_FIGURES)
            return erg_fail(err, ERG_USAGE,
                            "the figures '%.80s' are not understood; expected numbers out of 4, 5, "
                            "8, 10, 13, 15 and 17 with commas between them",
                            text);
        numbers[(*count)++] = (int)number;
    }
    return 0;
}

/* ---- what comes out ---- */

static json_t *mark_json(const struct erg_collected *mark)
{
    const struct erg_study_result *result = mark->result;
    const struct erg_result_metrics *m = &result->metrics;
    return erg_json_pack(
        "{s:s, s:s, s:b, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", mark->name,
        "id", mark->id, "equal", mark->equal, "status", erg_result_status_names[result->status],
        "message", result->message, "time_s", erg_json_number(m->time_s), "tokens_per_s_gpu",
        erg_json_number(m->tokens_per_s_gpu), "energy_j", erg_json_number(m->energy_j),
        "tokens_per_j", erg_json_number(m->tokens_per_j), "eff_edp", erg_json_number(m->eff_edp),
        "power_w", erg_json_number(m->power_w.mean), "temperature_c",
        erg_json_number(m->temperature_c.mean), "busy_clock_mhz",
        erg_json_number(m->busy_clock_mhz));
}

static json_t *tally_json(const struct erg_study_tally *tally)
{
    json_t *counts = erg_json_pack("{s:I}", "ran", (json_int_t)tally->ran);
    for (size_t i = 0; i <= ERG_RESULT_SKIPPED; i++)
        json_object_set_new(counts, erg_result_status_names[i],
                            json_integer((json_int_t)tally->by_status[i]));
    return counts;
}

static json_t *marks_json(const struct erg_collection *collection)
{
    json_t *marks = json_array();
    for (size_t i = 0; i < collection->count; i++)
        json_array_append_new(marks, mark_json(&collection->marks[i]));
    return marks;
}

static void make_document(struct erg_characterize_call *at)
{
    at->document = erg_json_pack(
        "{s:s, s:i, s:s, s:s, s:o, s:o, s:o}", "schema", "ergon.characterization", "schema_version",
        1, "name", at->collection->name, "folder", at->folder, "points", tally_json(&at->tally),
        "marks", marks_json(at->collection), "findings", erg_findings_json(&at->findings));
}

/* Only of the points to run. */
static void list_document(struct erg_characterize_call *at, const struct erg_study *study)
{
    json_t *marks = json_array();
    for (size_t i = 0; i < study->mark_count; i++) {
        const struct erg_study_mark *mark = &study->marks[i];
        const struct erg_study_point *point = &study->points[mark->point];
        json_array_append_new(marks, erg_json_pack("{s:s, s:s, s:b, s:s?}", "name", mark->name,
                                                   "id", point->id, "equal", mark->equal,
                                                   "impossible", point->impossible));
    }
    at->document = erg_json_pack("{s:s, s:i, s:s, s:I, s:o}", "schema", "ergon.characterization",
                                 "schema_version", 1, "name", study->name, "runs",
                                 (json_int_t)study->point_count, "marks", marks);
}

/* ---- figures and findings ---- */

static int write_findings(const struct erg_characterize_call *at, struct erg_error *err)
{
    json_t *document = erg_findings_json(&at->findings);
    char *path = erg_file_path(at->folder, "findings.json");
    int result = erg_json_write(path, document, err);
    free(path);
    json_decref(document);
    return result;
}

static int check(struct erg_characterize_call *at, struct erg_error *err)
{
    const size_t others = at->input->other_count;
    struct erg_collection **collections = erg_xcalloc(others + 1, sizeof *collections);
    size_t count = 0;
    int result = 0;
    collections[count++] = at->collection;
    for (size_t i = 0; i < others && result == 0; i++) {
        result = erg_collection_load(&collections[count], at->input->others[i], err);
        count += result == 0;
    }
    if (result == 0)
        erg_findings_check(&at->findings, (const struct erg_collection *const *)collections, count);
    for (size_t i = 1; i < count; i++)
        erg_collection_free(collections[i]);
    free(collections);
    return result == 0 ? write_findings(at, err) : -1;
}

static int draw(struct erg_characterize_call *at, struct erg_error *err)
{
    int numbers[MOST_FIGURES];
    struct erg_figures_input input = {
        .numbers = numbers,
        .right = (enum erg_figure_right)at->input->right,
        .findings = &at->findings,
    };
    if (parse_figures(numbers, &input.count, at->input->figures, err) != 0 ||
        erg_collection_load(&at->collection, at->folder, err) != 0 || check(at, err) != 0 ||
        erg_figures_write(at->folder, at->collection, &input, err) != 0)
        return -1;
    make_document(at);
    return 0;
}

/* ---- running ---- */

static int run_points(struct erg_characterize_call *at, const struct erg_study *study,
                      struct erg_error *err)
{
    const bool measures = strcmp(study->measuring.device, "emulated") != 0;
    struct erg_measure_context measuring = {
        .program = at->input->program, .folder = at->folder, .lock_clocks = at->input->lock_clocks};
    const struct erg_study_run run = {
        .study = study,
        .folder = at->folder,
        .only = at->input->only,
        .jobs = measures ? 1 : at->input->jobs,
        .retry = at->input->retry,
        .point = measures ? erg_measure_point : erg_emulate_point,
        .context = measures ? (void *)&measuring : (void *)(uintptr_t)at->folder,
    };
    int claim;
    if (erg_study_claim(&claim, study, at->folder, err) != 0)
        return -1;
    int result = erg_study_run(&run, &at->tally, err);
    if (result == 0)
        result = draw(at, err);
    erg_study_release(claim);
    return result;
}

static int run_study(struct erg_characterize_call *at, struct erg_error *err)
{
    const struct erg_characterize_input *input = at->input;
    const struct erg_study_change change = {
        .seeded = input->seeded,
        .seed = input->seed,
        .transient_s = input->transient_s,
        .sensor = input->sensor,
        .device = input->device,
    };
    struct erg_study *study;
    int numbers[MOST_FIGURES], result = 0;
    size_t count;
    if (parse_figures(numbers, &count, input->figures, err) != 0 ||
        erg_study_load(&study, input->file, &change, err) != 0)
        return -1;
    at->folder = erg_xstrdup(input->folder ? input->folder : study->name);
    if (input->list)
        list_document(at, study);
    else
        result = run_points(at, study, err);
    erg_study_free(study);
    return result;
}

/* Points by their files. */
static void count_points(struct erg_characterize_call *at)
{
    for (size_t i = 0; i < at->collection->count; i++)
        if (!at->collection->marks[i].equal)
            at->tally.by_status[at->collection->marks[i].result->status]++;
}

static int redraw(struct erg_characterize_call *at, struct erg_error *err)
{
    at->folder = erg_xstrdup(at->input->folder);
    if (draw(at, err) != 0)
        return -1;
    count_points(at);
    json_object_set_new(at->document, "points", tally_json(&at->tally));
    return 0;
}

int erg_characterize_call_run(struct erg_characterize_call *at,
                              const struct erg_characterize_input *input, struct erg_error *err)
{
    *at = (struct erg_characterize_call){.input = input};
    return input->file ? run_study(at, err) : redraw(at, err);
}

void erg_characterize_call_release(struct erg_characterize_call *at)
{
    free(at->folder);
    erg_findings_release(&at->findings);
    erg_collection_free(at->collection);
    json_decref(at->document);
}

int erg_characterize_call_judge(const struct erg_characterize_call *at, struct erg_error *err)
{
    const struct erg_study_tally *tally = &at->tally;
    size_t total = 0;
    if (tally->by_status[ERG_RESULT_FAILED])
        return erg_fail(err, ERG_FAILED, "%zu of the points failed%s%.700s",
                        tally->by_status[ERG_RESULT_FAILED],
                        tally->first.status ? "; the first is " : "",
                        tally->first.status ? tally->first.message : "");
    for (size_t i = 0; i <= ERG_RESULT_SKIPPED; i++)
        total += tally->by_status[i];
    if (at->collection && !tally->by_status[ERG_RESULT_OK] && !tally->by_status[ERG_RESULT_SKIPPED])
        return erg_fail(err, ERG_INFEASIBLE, "none of the %zu points fits: %s", total,
                        at->collection->count && at->collection->marks[0].result->message
                            ? at->collection->marks[0].result->message
                            : "it has none");
    return 0;
}
