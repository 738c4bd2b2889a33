/* What ergon schedule --status prints. */
#include "live_status.h"

#include "cluster/live/schedule_status.h"

#include <time.h>

static char *printed(const json_t *status)
{
    char *text = NULL;
    size_t count;
    FILE *file = open_memstream(&text, &count);
    erg_schedule_status_print(file, status);
    fclose(file);
    return text;
}

static void check_printed(const json_t *status, const char *expected)
{
    char *text = printed(status);
    assert_string_equal(text, expected);
    free(text);
}

static void test_a_cluster(void **state)
{
    (void)state;
    json_t *status = live_status(1800000000); /* 2027-01-15 08:00:00 UTC */
    check_printed(status, "2027-01-15 08:00:00, policy ergon: 16 GPUs on 4 nodes, 9 with managed "
                          "jobs, 1 with other jobs, 1 free, 5 on nodes that are not up\n"
                          "Power: 5.12 kW of a cap of 9.00 kW, 1.80 kW without jobs\n"
                          "Node a2: down, Not responding\n"
                          "Node h002: draining, fan of GPU 3\n"
                          "\n"
                          "Jobs with GPUs: 3\n"
                          "  job                                            phase    GPUs  point  "
                          "done  s/iteration  ends in  restarts  nodes\n"
                          "  12 bert-large (anna)                         running       4      2  "
                          "24 %        0.840  0:52:43         2  a1\n"
                          "  14 </script><script>document.tit... (anna)  stopping  4 to 6      0   "
                          "1 %         12.5        -         0  h[001-002]\n"
                          "  15 line\\x0abreak \"quoted\" \\x07 \\... (anna)  starting       1     "
                          " 0     -            -        -         0  h002\n"
                          "\n"
                          "Waiting jobs: 2\n"
                          "  job             GPUs   waited  starts in  why it waits\n"
                          "  16 gpt (anna)      8  1:30:00    0:52:43  not enough GPUs are free\n"
                          "  17 dead (anna)     2  1:30:00          -  needs attention: three "
                          "failures in a row without a new checkpoint\n"
                          "\n"
                          "Last decisions and actions\n"
                          "  06:53:20  too long ago\n"
                          "  07:58:58  job 14: stop, since it gets other GPUs\n"
                          "  07:58:59  job 14: from 4 to 6 GPUs <b>bold</b>\n");
    json_decref(status);
}

static void test_unknown_values(void **state)
{
    (void)state;
    struct erg_error err = {0};
    json_t *status;
    check_printed(NULL, "-, policy -: 0 GPUs on 0 nodes, 0 with managed jobs, 0 free\n"
                        "The resource manager does not answer: this is the last known state.\n"
                        "\nJobs with GPUs: 0\n\nWaiting jobs: 0\n");
    static const char odd[] =
        "{\"at_unix_s\":1e300,\"policy\":7,\"answers\":true,\"power\":[],\"nodes\":[3,{\"gpus\":"
        "[1,null]}],\"jobs\":[4,{\"id\":5,\"gpus\":2,\"nodes\":[1,\"n1\",\"n2\",\"n10\",\"m\"]}],"
        "\"notes\":[5,{\"text\":\"x\"}]}";
    assert_ok(erg_json_parse(&status, "odd", odd, sizeof odd - 1, &err), &err);
    check_printed(status,
                  "-, policy -: 2 GPUs on 2 nodes, 0 with managed jobs, 1 with other jobs, 0 free, "
                  "1 on nodes that are not up\n"
                  "\n"
                  "Jobs with GPUs: 1\n"
                  "  job  phase  GPUs  point  done  s/iteration  ends in  restarts  nodes\n"
                  "  5        -     2      -     -            -        -         -  n[1-2],n10,m\n"
                  "\n"
                  "Waiting jobs: 1\n"
                  "  job  GPUs  waited  starts in  why it waits\n"
                  "  -       -       -          -  -\n"
                  "\n"
                  "Last decisions and actions\n"
                  "  -  \n"
                  "  -  x\n");
    json_decref(status);
}

/* Ten nodes at most, and the last ten notes; nodes that are off are nobody's trouble. */
static void test_long_lists(void **state)
{
    (void)state;
    json_t *status = live_status(1800000000), *nodes = json_array(), *notes = json_array();
    for (int i = 0; i < 25; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%02d", i);
        json_array_append_new(nodes, erg_json_pack("{s:s, s:s, s:s, s:[n]}", "name", name, "type",
                                                   "T", "state", i % 2 ? "off" : "down", "gpus"));
        json_array_append_new(
            notes, erg_json_pack("{s:f, s:s}", "at_unix_s", 1800000000. + i, "text", name));
    }
    json_object_set_new(status, "nodes", nodes);
    json_object_set_new(status, "notes", notes);
    json_object_set_new(status, "answers", json_false());
    char *text = printed(status);
    assert_non_null(strstr(text, "\nThe resource manager does not answer: "));
    assert_non_null(strstr(text, "\nNode n18: down\n3 more nodes are down, draining or unknown\n"));
    assert_null(strstr(text, ": off"));
    assert_null(strstr(text, "08:00:14  n14"));
    assert_non_null(strstr(text, "actions\n  08:00:15  n15\n"));
    free(text);
    json_decref(status);
}

int main(void)
{
    setenv("TZ", "UTC0", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cluster),
        cmocka_unit_test(test_unknown_values),
        cmocka_unit_test(test_long_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
