/* ergon characterize SWEEP.yaml: one job in every combination of layout and optimisation. */
#include "api/characterizing.h"
#include "cli/cli.h"
#include "io/print.h"

#include "base/table.h"

#include <math.h>
#include <stdio.h>

struct characterize_values {
    const char *output, *only, *figures, *redraw;
    struct erg_option_list others;
    bool list, check, retry;
    int right, sensor, device;
    long jobs;
    double transient_s;
};

static const char *const sensors[] = {"hopper", "exact", NULL};
static const char *const devices[] = {"emulated", "host", "cuda", NULL};

#define AT(member) offsetof(struct characterize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "points, figures and page go there (default: the study's name)"},
    {"list", 'l', ERG_OPTION_FLAG, NULL, AT(list),
     .help = "say what there is to run, and run nothing"},
    {"only", 'O', ERG_OPTION_TEXT, "GLOB", AT(only),
     .help = "run only points whose names match, as a shell matches files: '*/cc'"},
    {"device", 'd', ERG_OPTION_CHOICE, "KIND", AT(device), .choices = devices,
     .default_text = "emulated",
     .help = "emulated, or train each point on this machine, beside its emulated twin"},
    {"jobs", 'j', ERG_OPTION_LONG, "N", AT(jobs), 1, 4096,
     .help = "points at a time (default: as many as there are cores)"},
    {"retry", 'r', ERG_OPTION_FLAG, NULL, AT(retry), .help = "run points again that failed"},
    {"figures", 'f', ERG_OPTION_TEXT, "N,...", AT(figures),
     .help = "draw these of 4, 5, 8, 10, 13, 15, 17 (default: as the study says, else all)"},
    {"right", 'R', ERG_OPTION_CHOICE, "WHAT", AT(right), .choices = erg_figure_right_names,
     .default_text = "eff_edp", .help = "the right axis of figures 4, 8 and 13"},
    {"check", 'c', ERG_OPTION_FLAG, NULL, AT(check),
     .help =
         "print published findings and whether they hold of these points; fail if one does not"},
    {"with", 'w', ERG_OPTION_FILES, "DIR", AT(others),
     .help = "findings that compare clusters look into this study's folder, too"},
    {"redraw", 0, ERG_OPTION_FILE, "DIR", AT(redraw),
     .help = "figures, findings and page of the points that are there; needs no SWEEP.yaml"},
    {"sensor", 's', ERG_OPTION_CHOICE, "KIND", AT(sensor), .choices = sensors,
     .help = "what emulated sensors show (default: as the study says, else hopper)"},
    {"transient", 't', ERG_OPTION_DOUBLE, "SECONDS", AT(transient_s), 1, 1e6,
     .help = "so long from a cold start, in place of the steady state"},
    {0},
};

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

static void print_points(const struct erg_characterizing *at)
{
    static const char *const heads[] = {"point", "status", "time",       "energy",
                                        "power", "heat",   "busy clock", ""};
    struct erg_table table = {.columns = 0};
    const size_t *by_status = at->tally.by_status;
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < at->collection->count; i++)
        add_mark(&table, &at->collection->marks[i]);
    erg_print_table(stdout, &table, "  ");
    printf("%s: %zu ran now; ok %zu, out of memory %zu, impossible %zu, failed %zu, not run %zu\n",
           at->folder, at->tally.ran, by_status[ERG_RESULT_OK], by_status[ERG_RESULT_MEMORY],
           by_status[ERG_RESULT_IMPOSSIBLE], by_status[ERG_RESULT_FAILED],
           by_status[ERG_RESULT_SKIPPED]);
}

static void print_findings(const struct erg_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct erg_study_finding *finding = &findings->items[i];
        printf("%-6s %s: %s\n       expected %s\n       ours: %s\n", finding->id,
               erg_finding_verdict_names[finding->verdict], finding->claim, finding->expected,
               finding->ours);
    }
}

static void print_list(const json_t *document)
{
    const json_t *mark;
    size_t i;
    json_array_foreach(json_object_get(document, "marks"), i, mark)
    {
        const char *impossible = json_string_value(json_object_get(mark, "impossible"));
        printf("%s  %s%s%s%s\n", json_string_value(json_object_get(mark, "id")),
               json_string_value(json_object_get(mark, "name")),
               json_is_true(json_object_get(mark, "equal")) ? " =" : "", impossible ? ": " : "",
               impossible ? impossible : "");
    }
    printf("%zu points, %lld runs\n", json_array_size(json_object_get(document, "marks")),
           (long long)json_integer_value(json_object_get(document, "runs")));
}

static int make_wish(struct erg_characterizing_wish *wish, const struct erg_invocation *call,
                     struct erg_error *err)
{
    const struct characterize_values *values = call->values;
    if ((call->argument_count == 0) == !values->redraw)
        return erg_fail(err, ERG_USAGE,
                        values->redraw
                            ? "--redraw takes the points of a folder; expected no SWEEP.yaml"
                            : "\"ergon characterize\" needs SWEEP.yaml, or --redraw DIR; see "
                              "\"ergon characterize --help\"");
    if (values->redraw && (values->list || values->only || values->retry || values->output))
        return erg_fail(err, ERG_USAGE,
                        "--redraw runs nothing and writes into the folder that it is given; "
                        "expected no --list, --only, --retry and --output beside it");
    *wish = (struct erg_characterizing_wish){
        .file = call->argument_count ? call->arguments[0] : NULL,
        .folder = values->redraw ? values->redraw : values->output,
        .list = values->list,
        .only = values->only,
        .sensor = values->sensor < 0 ? NULL : sensors[values->sensor],
        .device = devices[values->device],
        .program = "/proc/self/exe",
        .figures = values->figures,
        .right = values->right,
        .jobs = values->jobs == ERG_NOT_GIVEN ? 0 : (size_t)values->jobs,
        .retry = values->retry,
        .seeded = call->common.seed != ERG_NOT_GIVEN,
        .seed = (uint64_t)call->common.seed,
        .transient_s = values->transient_s,
        .others = values->others.items,
        .other_count = values->others.count,
    };
    return 0;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct characterize_values *values = call->values;
    struct erg_characterizing_wish wish;
    struct erg_characterizing at;
    if (make_wish(&wish, call, err) != 0)
        return -1;
    int status = erg_characterizing_run(&at, &wish, err);
    if (status == 0 && call->common.json) {
        erg_print_json(stdout, json_incref(at.document));
    } else if (status == 0 && values->list) {
        print_list(at.document);
    } else if (status == 0) {
        print_points(&at);
        if (values->check)
            print_findings(&at.findings);
    }
    if (status == 0 && !values->list)
        status = erg_characterizing_judge(&at, err);
    const size_t failed = erg_findings_failed(&at.findings);
    if (status == 0 && values->check && failed > 0)
        status = erg_fail(err, ERG_FAILED, "%zu finding%s not hold of these points", failed,
                          failed == 1 ? " does" : "s do");
    erg_characterizing_release(&at);
    return status;
}

const struct erg_command erg_cmd_characterize = {
    .name = "characterize",
    .summary = "compare layouts by power, heat and traffic of every GPU, with figures",
    .arguments = "SWEEP.yaml",
    .least_arguments = 0, /* --redraw needs none */
    .most_arguments = 1,
    .values_bytes = sizeof(struct characterize_values),
    .options = options,
    .details =
        "Runs every combination of model, layout, microbatch and optimisation that a file lists "
        "on\n"
        "an emulated cluster, whose GPUs heat each other, and draws what each came to. A run that\n"
        "was ended goes on where it was.",
    .examples = "  ergon characterize examples/characterize/charllm-parallelism-h200.yaml -o out\n"
                "  ergon characterize --redraw out --figures 4,17 --right tokens_per_j\n",
    .run = run,
};
