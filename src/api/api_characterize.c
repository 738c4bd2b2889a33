/* ergon/characterize.h: studies run for a program. */
#include "ergon/characterize.h"

#include "api/characterize_call.h"
#include "api/characterize_print.h"
#include "api/door.h"
#include "base/call.h"
#include "base/memory.h"
#include "base/sized.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct erg_characterization {
    struct erg_characterization_counts counts;
    char *json, *text, *findings;
    int checked; /* -1: for this reason */
    struct erg_error reason;
};

struct characterizing_call {
    struct erg_characterization_options options;
    struct erg_characterization *study;
};

static struct erg_characterization_counts counts_of(const struct erg_characterize_call *at)
{
    const size_t *by_status = at->tally.by_status;
    return (struct erg_characterization_counts){
        .ran = (int64_t)at->tally.ran,
        .ok = (int64_t)by_status[ERG_RESULT_OK],
        .memory = (int64_t)by_status[ERG_RESULT_MEMORY],
        .impossible = (int64_t)by_status[ERG_RESULT_IMPOSSIBLE],
        .failed = (int64_t)by_status[ERG_RESULT_FAILED],
        .skipped = (int64_t)by_status[ERG_RESULT_SKIPPED],
        .failed_findings = (int64_t)erg_findings_failed(&at->findings),
    };
}

static int make_input(struct erg_characterize_input *input,
                      const struct erg_characterization_options *options, struct erg_error *err)
{
    int right, sensor, device;
    if (!options->file && !options->folder)
        return erg_fail(err, ERG_USAGE,
                        "a study needs its file, or the folder of one that was run");
    *input = (struct erg_characterize_input){
        .file = options->file,
        .folder = options->folder,
        .only = options->only,
        .sensor = options->sensor,
        .figures = options->figures,
        .retry = options->retry != 0,
        .list = options->list != 0,
        .device = options->device,
        .program = options->program ? options->program : "ergon",
        .others = options->others,
        .other_count = options->other_count,
        .seeded = options->seeded != 0,
        .seed = options->seed,
        .lock_clocks = options->lock_clocks != 0,
    };
    long jobs;
    if (erg_door_choice(&right, "right", options->right, ERG_WORDS_RIGHT, err) != 0 ||
        erg_door_choice(&sensor, "sensor", options->sensor, ERG_WORDS_SENSOR, err) != 0 ||
        erg_door_choice(&device, "device", options->device, ERG_WORDS_STUDY_DEVICE, err) != 0 ||
        erg_door_number(&jobs, "jobs", options->jobs, 4096, err) != 0 ||
        erg_door_amount(&input->transient_s, "transient_s", options->transient_s, err) != 0)
        return -1;
    if (input->lock_clocks && (!options->device || strcmp(options->device, "cuda") != 0))
        return erg_fail(err, ERG_USAGE,
                        "locking clocks needs GPUs of this machine; expected the device cuda");
    input->right = right < 0 ? ERG_RIGHT_EFF_EDP : right;
    input->jobs = options->jobs ? (size_t)jobs : 0;
    return 0;
}

static char *written(const struct erg_characterize_call *at,
                     void (*print)(FILE *out, const struct erg_characterize_call *at))
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    print(out, at);
    fclose(out);
    return text;
}

static int run(void *argument, struct erg_error *err)
{
    struct characterizing_call *call = argument;
    struct erg_characterize_input input;
    struct erg_characterize_call at;
    if (make_input(&input, &call->options, err) != 0)
        return -1;
    int status = erg_characterize_call_run(&at, &input, err);
    if (status == 0) {
        call->study = erg_xcalloc(1, sizeof *call->study);
        call->study->counts = counts_of(&at);
        call->study->json = erg_door_json(json_incref(at.document));
        call->study->text =
            written(&at, input.list ? erg_characterize_print_list : erg_characterize_print_points);
        call->study->findings = written(&at, erg_characterize_print_findings);
        if (!input.list)
            call->study->checked = erg_characterize_call_judge(&at, &call->study->reason);
    }
    erg_characterize_call_release(&at);
    return status;
}

int erg_characterize(struct erg_characterization **study,
                     const struct erg_characterization_options *options, struct erg_error *err)
{
    struct characterizing_call call = {0};
    if (erg_sized_take(&call.options, sizeof call.options, options, "erg_characterization_options",
                       err) != 0 ||
        erg_call_run(run, &call, call.options.watch, err) != 0)
        return -1;
    *study = call.study;
    return 0;
}

void erg_characterization_free(struct erg_characterization *study)
{
    if (!study)
        return;
    free(study->json);
    free(study->text);
    free(study->findings);
    free(study);
}

int erg_characterization_counts(const struct erg_characterization *study,
                                struct erg_characterization_counts *counts, struct erg_error *err)
{
    return erg_sized_give(counts, &study->counts, sizeof study->counts,
                          "erg_characterization_counts", err);
}

const char *erg_characterization_json(const struct erg_characterization *study)
{
    return study->json;
}

const char *erg_characterization_text(const struct erg_characterization *study)
{
    return study->text;
}

const char *erg_characterization_findings(const struct erg_characterization *study)
{
    return study->findings;
}

int erg_characterization_check(const struct erg_characterization *study, struct erg_error *err)
{
    if (study->checked != 0 && err)
        *err = study->reason;
    return study->checked;
}
