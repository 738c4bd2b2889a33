/* Runs a controller of live jobs, with its page, until it ends. */
#include "serve/schedule_run.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/live/controller.h"
#include "cluster/live/schedule_status.h"
#include "cluster/policies/policies.h"
#include "io/file.h"
#include "io/json.h"
#include "serve/schedule_page.h"

#include <stdlib.h>

static int print_status(FILE *out, const struct erg_live_file *file, bool json,
                        struct erg_error *err)
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
            fwrite(text, 1, length, out);
        else if (result == 0)
            erg_schedule_status_print(out, status);
        free(text);
    }
    json_decref(status);
    free(path);
    return result;
}

static int go_on(struct erg_controller *controller, struct erg_schedule_page *page,
                 const struct erg_schedule_input *values, struct erg_error *err)
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

static int control(FILE *out, const struct erg_controller_setup *setup,
                   const struct erg_schedule_input *values, struct erg_error *err)
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
            fprintf(out, "%zu job%s handed back\n", count, erg_plural(count));
    } else {
        if (values->page)
            result = erg_schedule_page_open(&page, values->page, err);
        if (page) {
            fprintf(out, "%s\n", erg_schedule_page_url(page));
            fflush(out);
        }
        if (result == 0)
            result = go_on(controller, page, values, err);
        erg_schedule_page_close(page);
    }
    erg_controller_free(controller);
    return result;
}

static int run_with(FILE *out, const struct erg_schedule_input *values,
                    const struct erg_live_file *file, struct erg_error *err)
{
    struct erg_controller_setup setup = {
        .file = file,
        .policy = file->policy,
        .compress = values->compress,
        .dry_run = values->dry_run,
        .say = values->say,
    };
    struct erg_tariff tariff = {0};
    struct erg_text journal = {0};
    if (values->policy && erg_policy_find(&setup.policy, values->policy, err) != 0)
        return -1;
    if (values->tariff && erg_tariff_load(&tariff, values->tariff, err) != 0)
        return -1;
    if (values->journal)
        erg_text_add(&journal, values->journal);
    else
        erg_text_printf(&journal, "%s.journal", values->live);
    setup.journal = journal.data;
    setup.tariff = values->tariff ? &tariff : NULL;
    int result =
        erg_slurm_engine_open(&setup.engine, &file->fleet, (const char *const *)file->nodes.items,
                              file->slurm.partition, err);
    if (result == 0) {
        erg_interrupt_install();
        result = control(out, &setup, values, err);
        setup.engine->calls->close(setup.engine);
    }
    erg_text_release(&journal);
    erg_tariff_release(&tariff);
    return result;
}

int erg_schedule_run(FILE *out, const struct erg_schedule_input *values, struct erg_error *err)
{
    struct erg_live_file *file;
    if (erg_live_file_load(&file, values->live, err) != 0)
        return -1;
    int result = run_with(out, values, file, err);
    erg_live_file_free(file);
    return result;
}

int erg_schedule_status(FILE *out, const struct erg_schedule_input *values, bool json,
                        struct erg_error *err)
{
    struct erg_live_file *file;
    if (erg_live_file_load(&file, values->live, err) != 0)
        return -1;
    int result = print_status(out, file, json, err);
    erg_live_file_free(file);
    return result;
}
