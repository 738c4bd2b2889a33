/* ergon schedule LIVE.yaml: a policy drives the managed jobs of a Slurm cluster. */
#include "cli/cli.h"
#include "cluster/live/schedule_status.h"
#include "serve/schedule_page.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/live/controller.h"
#include "cluster/policies/policies.h"
#include "io/file.h"
#include "io/json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct schedule_values {
    const char *policy, *journal, *page, *tariff;
    bool dry_run, once, status, hand_back, until_empty;
    double compress;
};

#define AT(member) offsetof(struct schedule_values, member)
static const struct erg_option options[] = {
    {"policy", 'p', ERG_OPTION_TEXT, "NAME", AT(policy),
     .help = "who gets which GPUs (default: the live file's, else ergon)"},
    {"journal", 'j', ERG_OPTION_FILE, "FILE", AT(journal),
     .help = "what is kept of decisions and actions (default: LIVE.yaml.journal)"},
    {"tariff", 't', ERG_OPTION_FILE, "FILE", AT(tariff),
     .help = "what electricity costs and emits: at_s, usd_per_kwh, g_co2_per_kwh"},
    {"page", 'g', ERG_OPTION_TEXT, "ADDRESS:PORT", AT(page),
     .help = "show the cluster, its jobs and decisions there, and metrics at /metrics"},
    {"dry-run", 'n', ERG_OPTION_FLAG, NULL, AT(dry_run),
     .help = "decide and say so, change nothing; also against a cluster in use"},
    {"once", '1', ERG_OPTION_FLAG, NULL, AT(once), .help = "one pass: look, decide, act, end"},
    {"until-empty", 'E', ERG_OPTION_FLAG, NULL, AT(until_empty),
     .help = "end when all managed jobs have"},
    {"status", 'S', ERG_OPTION_FLAG, NULL, AT(status),
     .help = "print what the running controller last said, and end"},
    {"hand-back", 0, ERG_OPTION_FLAG, NULL, AT(hand_back),
     .help = "turn all waiting jobs into ordinary ones of Slurm, and end"},
    {"compress", 0, ERG_OPTION_DOUBLE, "C", AT(compress), 1, 1000, .default_text = "1",
     .help = "for tests: deadlines, speeds and rounds are of seconds that pass C times as fast"},
    {0},
};

static void say(void *context, const char *line)
{
    (void)context;
    erg_terminal_line(line);
}

static int print_status(const struct erg_live_file *file, bool json, struct erg_error *err)
{
    char *path = erg_file_path(file->slurm.spool, ".controller/status.json"), *text;
    size_t length;
    json_t *status = NULL;
    int result = -1;
    if (erg_file_read(path, 0, &text, &length, err) != 0) {
        erg_fail_context(err, "no controller has written its status yet");
    } else {
        result = erg_json_parse(&status, path, text, length, err);
        if (result == 0 && json)
            fwrite(text, 1, length, stdout);
        else if (result == 0)
            erg_schedule_status_print(stdout, status);
        free(text);
    }
    json_decref(status);
    free(path);
    return result;
}

static int go_on(struct erg_controller *controller, struct erg_schedule_page *page,
                 const struct schedule_values *values, struct erg_error *err)
{
    for (;;) {
        double wait_s;
        if (erg_controller_pass(controller, &wait_s, err) != 0)
            return -1;
        if (page) {
            json_t *status = erg_controller_status(controller);
            erg_schedule_page_update(page, status);
            json_decref(status);
        }
        if (values->once || (values->until_empty && !erg_controller_is_busy(controller)))
            return 0;
        const int64_t until_ns = erg_now_ns() + (int64_t)(1e9 * wait_s);
        for (int64_t now_ns = erg_now_ns(); now_ns < until_ns; now_ns = erg_now_ns()) {
            if (erg_interrupted())
                return 0;
            const int64_t left_ns = until_ns - now_ns;
            erg_sleep_ns(left_ns < 100000000 ? left_ns : 100000000);
        }
        if (erg_interrupted())
            return 0;
    }
}

static int control(const struct erg_controller_setup *setup, const struct schedule_values *values,
                   struct erg_error *err)
{
    struct erg_controller *controller;
    struct erg_schedule_page *page = NULL;
    if (erg_controller_new(&controller, setup, err) != 0)
        return -1;
    int result = 0;
    size_t count;
    if (values->hand_back) {
        result = erg_controller_hand_back(controller, &count, err);
        if (result == 0)
            printf("%zu job%s handed back\n", count, erg_plural(count));
    } else {
        if (values->page)
            result = erg_schedule_page_open(&page, values->page, err);
        if (page) {
            puts(erg_schedule_page_url(page));
            fflush(stdout);
        }
        if (result == 0)
            result = go_on(controller, page, values, err);
        erg_schedule_page_close(page);
    }
    erg_controller_free(controller);
    return result;
}

static int run_with(const struct erg_invocation *call, const struct erg_live_file *file,
                    struct erg_error *err)
{
    const struct schedule_values *values = call->values;
    struct erg_controller_setup setup = {
        .file = file,
        .policy = file->policy,
        .compress = values->compress,
        .dry_run = values->dry_run,
        .say = say,
    };
    struct erg_tariff tariff = {0};
    struct erg_text journal = {0};
    if (values->status)
        return print_status(file, call->common.json, err);
    if (values->policy && erg_policy_find(&setup.policy, values->policy, err) != 0)
        return -1;
    if (values->tariff && erg_tariff_load(&tariff, values->tariff, err) != 0)
        return -1;
    if (values->journal)
        erg_text_add(&journal, values->journal);
    else
        erg_text_printf(&journal, "%s.journal", call->arguments[0]);
    setup.journal = journal.data;
    setup.tariff = values->tariff ? &tariff : NULL;
    int result =
        erg_slurm_engine_open(&setup.engine, &file->fleet, (const char *const *)file->nodes.items,
                              file->slurm.partition, err);
    if (result == 0) {
        erg_interrupt_install();
        result = control(&setup, values, err);
        setup.engine->calls->close(setup.engine);
    }
    erg_text_release(&journal);
    erg_tariff_release(&tariff);
    return result;
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_live_file *file;
    if (erg_live_file_load(&file, call->arguments[0], err) != 0)
        return -1;
    int result = run_with(call, file, err);
    erg_live_file_free(file);
    return result;
}

const struct erg_command erg_cmd_schedule = {
    .name = "schedule",
    .summary = "drive the training jobs of a Slurm cluster by a policy",
    .arguments = "LIVE.yaml",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct schedule_values),
    .options = options,
    .details =
        "Decides which managed job, one of \"ergon submit\", has which GPUs, and has Slurm start, "
        "stop and\nmove them; all other jobs are left alone. A job is moved by a checkpoint. When "
        "the controller ends,\nrunning jobs run on, waiting ones wait for the next one. It runs "
        "until a signal ends it.",
    .examples = "  ergon schedule live.yaml --dry-run --once\n"
                "  ergon schedule live.yaml --page 127.0.0.1:9474\n"
                "  ergon schedule live.yaml --status\n",
    .run = run,
};
