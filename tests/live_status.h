/*
 * A controller's status: 4 nodes of 4 GPUs, of which one is down; three jobs with GPUs, one of them
 * about to get two more; two that wait, one that needs attention, two that are over; a job of
 * others; names that try to be more than names.
 */
#ifndef ERGON_TESTS_LIVE_STATUS_H
#define ERGON_TESTS_LIVE_STATUS_H

#include "check.h"

#include "base/text.h"
#include "io/json.h"

#define LIVE_HOSTILE "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"

static inline void live_status_job(struct erg_text *out, double at, int id, const char *name,
                                   const char *phase, const char *rest)
{
    erg_text_printf(out,
                    "%s{\"token\":\"%016x\",\"id\":%d,\"name\":%s,\"user\":\"anna\",\"account\":"
                    "\"vision\",\"phase\":\"%s\",\"submitted_unix_s\":%.0f,"
                    "\"deadline_unix_s\":null,%s}",
                    out->data[out->count - 1] == '[' ? "" : ",", (unsigned)id, id, name, phase,
                    at - 5400, rest);
}

/* As of that moment. */
static inline json_t *live_status(double at)
{
    struct erg_text text = {0};
    struct erg_error err = {0};
    char rest[512];
    json_t *status;
    erg_text_printf(
        &text,
        "{\"schema_version\":1,\"at_unix_s\":%.3f,\"policy\":\"ergon\",\"compress\":1.0,"
        "\"answers\":true,\"decisions\":17,\"actions\":31,\"actions_failed\":2,"
        "\"power\":{\"now_w\":5120.0,\"idle_w\":1800.0,\"cap_w\":9000.0},\"nodes\":["
        "{\"name\":\"a1\",\"type\":\"A40-48GB\",\"state\":\"up\",\"reason\":null,"
        "\"gpus\":[12,12,12,12]},"
        "{\"name\":\"a2\",\"type\":\"A40-48GB\",\"state\":\"down\",\"reason\":\"Not responding\","
        "\"gpus\":[null,null,null,null]},"
        "{\"name\":\"h001\",\"type\":\"H100-SXM-80GB\",\"state\":\"up\",\"reason\":null,"
        "\"gpus\":[14,14,99,null]},"
        "{\"name\":\"h002\",\"type\":\"H100-SXM-80GB\",\"state\":\"draining\","
        "\"reason\":\"fan of GPU 3\",\"gpus\":[14,14,15,null]}],\"jobs\":[",
        at);
    snprintf(rest, sizeof rest,
             "\"reason\":null,\"gpus\":4,\"gpus_intended\":4,\"nodes\":[\"a1\"],\"point\":2,"
             "\"iteration\":1234.0,\"iterations\":5000.0,\"iteration_s\":0.84,"
             "\"starts_unix_s\":null,\"ends_unix_s\":%.0f,\"starts\":3,\"needs_attention\":false",
             at + 3163);
    live_status_job(&text, at, 12, "\"bert-large\"", "running", rest);
    live_status_job(&text, at, 14, "\"" LIVE_HOSTILE "\"", "stopping",
                    "\"reason\":null,\"gpus\":4,\"gpus_intended\":6,\"nodes\":[\"h001\",\"h002\"],"
                    "\"point\":0,\"iteration\":10.0,\"iterations\":1000.0,\"iteration_s\":12.5,"
                    "\"starts_unix_s\":null,\"ends_unix_s\":null,\"starts\":1,"
                    "\"needs_attention\":false");
    live_status_job(&text, at, 15, "\"line\\nbreak \\\"quoted\\\" \\u0007 \\u2028\"", "starting",
                    "\"reason\":null,\"gpus\":1,\"gpus_intended\":1,\"nodes\":[\"h002\"],"
                    "\"point\":0,\"iteration\":null,\"iterations\":200.0,\"iteration_s\":null,"
                    "\"starts_unix_s\":null,\"ends_unix_s\":null,\"starts\":1,"
                    "\"needs_attention\":false");
    snprintf(rest, sizeof rest,
             "\"reason\":\"not enough GPUs are free\",\"gpus\":0,\"gpus_intended\":0,"
             "\"gpus_asked\":8,\"nodes\":[],\"point\":0,\"iteration\":null,\"iterations\":100.0,"
             "\"iteration_s\":null,\"starts_unix_s\":%.0f,\"ends_unix_s\":null,\"starts\":0,"
             "\"needs_attention\":false",
             at + 3163);
    live_status_job(&text, at, 16, "\"gpt\"", "waiting", rest);
    live_status_job(&text, at, 17, "\"dead\"", "failed",
                    "\"reason\":\"three failures in a row without a new checkpoint\",\"gpus\":0,"
                    "\"gpus_intended\":0,\"gpus_asked\":2,\"nodes\":[],\"point\":0,"
                    "\"iteration\":null,\"iterations\":100.0,\"iteration_s\":null,"
                    "\"starts_unix_s\":null,\"ends_unix_s\":null,\"starts\":3,"
                    "\"needs_attention\":true");
    /* The second one's id is the foreign job's now. */
    for (int id = 10; id < 100; id += 89)
        live_status_job(&text, at, id, "\"over\"", id == 10 ? "ended" : "cancelled",
                        "\"reason\":null,\"gpus\":0,\"gpus_intended\":0,\"nodes\":[],\"point\":0,"
                        "\"iteration\":null,\"iterations\":1.0,\"iteration_s\":null,"
                        "\"starts_unix_s\":null,\"ends_unix_s\":null,\"starts\":1,"
                        "\"needs_attention\":false");
    erg_text_printf(&text,
                    "],\"notes\":[{\"at_unix_s\":%.0f,\"text\":\"too long ago\"},"
                    "{\"at_unix_s\":%.0f,\"text\":\"job 14: stop, since it gets other GPUs\"},"
                    "{\"at_unix_s\":%.0f,\"text\":\"job 14: from 4 to 6 GPUs <b>bold</b>\"}]}",
                    at - 4000, at - 62, at - 61);
    assert_ok(erg_json_parse(&status, "status", text.data, text.count, &err), &err);
    erg_text_release(&text);
    return status;
}

#endif
