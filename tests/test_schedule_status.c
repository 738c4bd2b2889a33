/* What ergon schedule --status prints. */
#include "live_status.h"

#include "cli/schedule_status.h"

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
    check_printed(status, "?");
    json_decref(status);
}

static void test_what_is_not_known(void **state)
{
    (void)state;
    struct erg_error err = {0};
    json_t *status;
    check_printed(NULL, "-, policy : 0 GPUs on 0 nodes, 0 with managed jobs, 0 free\n"
                        "The resource manager does not answer: this is what was last known.\n"
                        "\n0 jobs with GPUs\n\n0 jobs without\n");
    static const char odd[] =
        "{\"at_unix_s\":1e300,\"policy\":7,\"answers\":true,\"power\":[],\"nodes\":[3,{\"gpus\":"
        "[1,null]}],\"jobs\":[4,{\"id\":5,\"gpus\":2,\"nodes\":[1,\"n1\",\"n2\",\"n10\",\"m\"]}],"
        "\"notes\":[5,{\"text\":\"x\"}]}";
    assert_ok(erg_json_parse(&status, "odd", odd, sizeof odd - 1, &err), &err);
    check_printed(status, "?");
    json_decref(status);
}

int main(void)
{
    setenv("TZ", "UTC0", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cluster),
        cmocka_unit_test(test_what_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
