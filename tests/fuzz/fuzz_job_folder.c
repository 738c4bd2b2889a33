/* libFuzzer: any bytes as a job's request.json, as its reports.jsonl in two pieces, as a line of
 * squeue and as a list of nodes. */
#include "cluster/live/host_list.h"
#include "cluster/live/job_folder.h"
#include "cluster/live/job_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_report(const struct erg_report *report)
{
    if (report->incarnation < 1 || report->state > ERG_JOB_DONE || report->iteration < 0 ||
        isinf(report->iteration) || report->iteration_s < 0 || report->checkpoint < 0)
        abort();
}

static void check_texts(const char *text)
{
    struct erg_host_list hosts = {0};
    struct erg_arena arena = {0};
    struct erg_live_line line;
    struct erg_error err;
    if (erg_host_list_add(&hosts, text, &err) == 0 && hosts.count == 0)
        abort();
    for (size_t i = 0; i < hosts.count; i++)
        if (!hosts.items[i][0] || strlen(hosts.items[i]) > ERG_HOST_NAME_MOST)
            abort();
    erg_host_list_release(&hosts);
    if (erg_live_line_parse(&line, text, &arena) &&
        (strlen(line.token) != ERG_TOKEN_LENGTH || !erg_live_line_says(&line)))
        abort();
    erg_arena_release(&arena);
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

    char *copy = erg_xmemdup(text, size);
    check_texts(copy);
    free(copy);
    return 0;
}
