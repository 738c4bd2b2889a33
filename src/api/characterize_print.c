/* Studies as tables. */
#include "api/characterize_print.h"

#include "base/table.h"
#include "io/print.h"

#include <math.h>

static void add_number(struct erg_table *table, const char *unit, double value)
{
    if (isnan(value))
        erg_table_add(table, "-");
    else
        erg_table_add(table, "%.4g%s", value, unit);
}

static void add_mark(struct erg_table *table, const struct erg_collected *mark)
{
    const struct erg_study_result *result = mark->result;
    const struct erg_result_metrics *m = &result->metrics;
    const bool ok = result->status == ERG_RESULT_OK;
    erg_table_add(table, "%s", mark->name);
    erg_table_add(table, "%s", erg_result_status_names[result->status]);
    add_number(table, " s", ok ? m->time_s : NAN);
    add_number(table, " kJ", ok ? m->energy_j / 1e3 : NAN);
    add_number(table, " W", ok ? m->power_w.mean : NAN);
    add_number(table, " C", ok ? m->temperature_c.mean : NAN);
    add_number(table, " MHz", ok ? m->busy_clock_mhz : NAN);
    erg_table_add(table, "%s", mark->equal ? "=" : "");
}

void erg_characterize_print_points(FILE *out, const struct erg_characterize_call *at)
{
    static const char *const heads[] = {"point", "status", "time",       "energy",
                                        "power", "heat",   "busy clock", ""};
    struct erg_table table = {.columns = 0};
    const size_t *by_status = at->tally.by_status;
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < at->collection->count; i++)
        add_mark(&table, &at->collection->marks[i]);
    erg_print_table(out, &table, "  ");
    fprintf(out,
            "%s: %zu ran now; ok %zu, out of memory %zu, impossible %zu, failed %zu, not run %zu\n",
            at->folder, at->tally.ran, by_status[ERG_RESULT_OK], by_status[ERG_RESULT_MEMORY],
            by_status[ERG_RESULT_IMPOSSIBLE], by_status[ERG_RESULT_FAILED],
            by_status[ERG_RESULT_SKIPPED]);
}

void erg_characterize_print_findings(FILE *out, const struct erg_characterize_call *at)
{
    const struct erg_findings *findings = &at->findings;
    for (size_t i = 0; i < findings->count; i++) {
        const struct erg_study_finding *finding = &findings->items[i];
        fprintf(out, "%-6s %s: %s\n       expected %s\n       ours: %s\n", finding->id,
                erg_finding_verdict_names[finding->verdict], finding->claim, finding->expected,
                finding->ours);
    }
}

void erg_characterize_print_list(FILE *out, const struct erg_characterize_call *at)
{
    const json_t *document = at->document;
    const json_t *mark;
    size_t i;
    json_array_foreach(json_object_get(document, "marks"), i, mark)
    {
        const char *impossible = json_string_value(json_object_get(mark, "impossible"));
        fprintf(out, "%s  %s%s%s%s\n", json_string_value(json_object_get(mark, "id")),
                json_string_value(json_object_get(mark, "name")),
                json_is_true(json_object_get(mark, "equal")) ? " =" : "", impossible ? ": " : "",
                impossible ? impossible : "");
    }
    fprintf(out, "%zu points, %lld runs\n", json_array_size(json_object_get(document, "marks")),
            (long long)json_integer_value(json_object_get(document, "runs")));
}
