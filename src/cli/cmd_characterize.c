/* ergon characterize SWEEP.yaml: one job in every combination of layout and optimisation. */
#include "cli/cli.h"

#include "ergon/characterize.h"

#include <math.h>
#include <stdio.h>

struct characterize_values {
    const char *output, *only, *figures, *redraw, *right, *sensor, *device;
    struct erg_option_list others;
    bool list, check, retry, lock_clocks;
    long jobs;
    double transient_s;
};

#define AT(member) offsetof(struct characterize_values, member)
static const struct erg_option options[] = {
    {"output", 'o', ERG_OPTION_FILE, "DIR", AT(output),
     .help = "folder for points, figures and the page (default: the study's name)"},
    {"list", 'l', ERG_OPTION_FLAG, NULL, AT(list),
     .help = "list the points to run, and run nothing"},
    {"only", 'O', ERG_OPTION_TEXT, "GLOB", AT(only),
     .help = "run only points whose names match this shell pattern, for example '*/cc'"},
    {"device", 'd', ERG_OPTION_WORD, "KIND", AT(device), .words = ERG_WORDS_STUDY_DEVICE,
     .default_text = "emulated",
     .help = "emulated: emulate each point; host, cuda: train each point on this machine and "
             "emulate it as well"},
    {"lock-clocks", 0, ERG_OPTION_FLAG, NULL, AT(lock_clocks),
     .help =
         "with --device cuda: lock the GPUs' SM clocks at those that points ask for, and unlock "
         "them after each point (needs permission)"},
    {"jobs", 'j', ERG_OPTION_LONG, "N", AT(jobs), 1, 4096,
     .help = "points to run at a time (default: the number of cores)"},
    {"retry", 'r', ERG_OPTION_FLAG, NULL, AT(retry), .help = "run points again that failed"},
    {"figures", 'f', ERG_OPTION_TEXT, "N,...", AT(figures),
     .help = "draw these of the figures 4, 5, 8, 10, 13, 15, 17 (default: the study's, else all)"},
    {"right", 'R', ERG_OPTION_WORD, "WHAT", AT(right), .words = ERG_WORDS_RIGHT,
     .default_text = "eff_edp", .help = "right axis of figures 4, 8 and 13"},
    {"check", 'c', ERG_OPTION_FLAG, NULL, AT(check),
     .help = "compare the points with published findings; fail if one does not hold"},
    {"with", 'w', ERG_OPTION_FILES, "DIR", AT(others),
     .help = "folder of another study, for findings that compare clusters"},
    {"redraw", 0, ERG_OPTION_FILE, "DIR", AT(redraw),
     .help = "draw figures, findings and page from the points in DIR; needs no SWEEP.yaml"},
    {"sensor", 's', ERG_OPTION_WORD, "KIND", AT(sensor), .words = ERG_WORDS_SENSOR,
     .help = "behaviour of emulated sensors (default: the study's, else hopper)"},
    {"transient", 't', ERG_OPTION_DOUBLE, "SECONDS", AT(transient_s), 1, 1e6,
     .help = "emulate this time from a cold start (default: the steady state)"},
    {0},
};

static int make_input(struct erg_characterization_options *input, const struct erg_invocation *call,
                      struct erg_error *err)
{
    const struct characterize_values *values = call->values;
    if ((call->argument_count == 0) == !values->redraw)
        return erg_fail(err, ERG_USAGE,
                        values->redraw
                            ? "--redraw reads the points of a folder; expected no SWEEP.yaml"
                            : "\"ergon characterize\" needs SWEEP.yaml or --redraw DIR; see "
                              "\"ergon characterize --help\"");
    if (values->redraw && (values->list || values->only || values->retry || values->output))
        return erg_fail(err, ERG_USAGE,
                        "--redraw runs nothing and writes into its own folder; expected it without "
                        "--list, --only, --retry and --output");
    *input = (struct erg_characterization_options){
        .size = sizeof *input,
        .file = call->argument_count ? call->arguments[0] : NULL,
        .folder = values->redraw ? values->redraw : values->output,
        .list = values->list,
        .only = values->only,
        .sensor = values->sensor,
        .device = values->device,
        .program = "/proc/self/exe",
        .figures = values->figures,
        .right = values->right,
        .jobs = erg_given_number(values->jobs),
        .retry = values->retry,
        .lock_clocks = values->lock_clocks,
        .seeded = call->common.seed != ERG_NOT_GIVEN,
        .seed = (uint64_t)call->common.seed,
        .transient_s = erg_given_amount(values->transient_s),
        .others = values->others.items,
        .other_count = values->others.count,
    };
    return 0;
}

static void print(const struct erg_invocation *call, const struct erg_characterization *study)
{
    const struct characterize_values *values = call->values;
    if (call->common.json) {
        puts(erg_characterization_json(study));
        return;
    }
    fputs(erg_characterization_text(study), stdout);
    if (values->check && !values->list)
        fputs(erg_characterization_findings(study), stdout);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    const struct characterize_values *values = call->values;
    struct erg_characterization_counts counts = {.size = sizeof counts};
    struct erg_characterization_options input;
    struct erg_characterization *study;
    if (make_input(&input, call, err) != 0 || erg_characterize(&study, &input, err) != 0)
        return -1;
    print(call, study);
    erg_characterization_counts(study, &counts, NULL);
    int status = erg_characterization_check(study, err);
    if (status == 0 && values->check && counts.failed_findings > 0)
        status = erg_fail(err, ERG_FAILED, "%lld finding%s not hold of these points",
                          (long long)counts.failed_findings,
                          counts.failed_findings == 1 ? " does" : "s do");
    erg_characterization_free(study);
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
    .details = "Runs every combination of model, layout, microbatch and optimisation in SWEEP.yaml "
               "on an emulated\n"
               "cluster whose GPUs heat each other, and draws figures of the results. A second run "
               "continues\n"
               "where the first stopped.",
    .examples = "  ergon characterize examples/characterize/charllm-parallelism-h200.yaml -o out\n"
                "  ergon characterize --redraw out --figures 4,17 --right tokens_per_j\n",
    .run = run,
};
