/* libFuzzer: any bytes as a job's request.json, and as its reports.jsonl in two pieces. */
#include "cluster/live/job_folder.h"

#include <math.h>
#include <stdlib.h>

static void check_report(const struct erg_report *report)
{
    if (report->incarnation < 1 || report->state > ERG_JOB_DONE || report->iteration < 0 ||
        isinf(report->iteration) || report->iteration_s < 0 || report->checkpoint < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const char *text = (const char *)data;
    struct erg_arena arena = {0};
    struct erg_live_request request;
    struct erg_error err;
    if (erg_job_folder_parse_request(&request, "fuzz", text, size, &arena, &err) == 0 &&
        (!request.family || !request.size || request.batch < 1 || !(request.iterations >= 1) ||
         isinf(request.iterations) || request.gpus < 1 || request.gpus_most < request.gpus ||
         !(request.weight > 0)))
        abort();
    erg_arena_release(&arena);

    struct erg_report_reader whole = {0}, parts = {0};
    bool fresh = false;
    size_t done = erg_report_reader_add(&whole, &fresh, text, size);
    if (done > size)
        abort();
    if (fresh)
        check_report(&whole.last);
    /* In pieces it is the same. */
    size_t first = erg_report_reader_add(&parts, &fresh, text, size / 2);
    first += erg_report_reader_add(&parts, &fresh, text + first, size - first);
    if (first != done || parts.ignored != whole.ignored ||
        parts.last.incarnation != whole.last.incarnation || parts.last.state != whole.last.state)
        abort();
    return 0;
}
