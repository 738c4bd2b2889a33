/* ergon doctor on machines that are well, ill, and empty. */
#include "commands.h"
#include "side_by_side.h"

/* The finding about a GPU (-1: the machine) and a subject, or NULL. */
static json_t *find_finding(json_t *root, int gpu, const char *subject)
{
    size_t i;
    json_t *item, *found = NULL;
    json_array_foreach(json_object_get(root, "findings"), i, item)
    {
        json_t *index = json_object_get(item, "gpu");
        int about = json_is_null(index) ? -1 : (int)json_integer_value(index);
        if (about == gpu && strcmp(text_at(item, "subject"), subject) == 0)
            found = item;
    }
    return found;
}

static json_t *finding(json_t *root, int gpu, const char *subject)
{
    json_t *found = find_finding(root, gpu, subject);
    if (!found)
        fail_msg("nothing was found about %s of %d", subject, gpu);
    return found;
}

static void test_without_a_driver(void **state)
{
    (void)state;
    set_world(NULL);
    json_t *root = run_json("doctor --json", 0);
    assert_int_equal(json_array_size(json_object_get(root, "gpus")), 0);
    assert_string_equal(text_at(finding(root, -1, "GPUs"), "state"), "missing");
    assert_non_null(strstr(text_at(finding(root, -1, "GPUs"), "fact"), "cannot be opened"));
    assert_string_equal(text_at(finding(root, -1, "CPU energy"), "state"), "missing");
    assert_string_equal(text_at(finding(root, -1, "data files"), "state"), "ok");
    assert_null(find_finding(root, -1, "clock control")); /* there are no clocks */
    finding(root, -1, "cuDNN");
    json_decref(root);
    check_program("doctor", 0, "missing  GPUs");
}

static void test_working_gpus(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    json_t *root = run_json("doctor --json", 0);
    /* A machine that is busy at that moment sees too few steps of a counter. */
    for (int i = 0; i < 10 && json_is_null(json_at(root, "gpus.0.energy_counter.period_s")); i++) {
        json_decref(root);
        root = run_json("doctor --json", 0);
    }
    assert_string_equal(text_at(finding(root, -1, "GPUs"), "state"), "ok");
    assert_string_equal(text_at(finding(root, 0, "GPU"), "state"), "ok");
    finding(root, -1, "clock control");
    assert_string_equal(text_at(finding(root, 1, "energy"), "state"), "ok");
    assert_string_equal(text_at(finding(root, 1, "clocks"), "state"), "ok");
    assert_string_equal(text_at(finding(root, 1, "two sources"), "state"), "ok");
    assert_near(number_at(root, "gpus.0.energy_counter.period_s"), 0.05, 0.02);
    assert_near(number_at(root, "gpus.1.power_to_counter_ratio"), 1, 0.1);
    assert_near(number_at(root, "gpus.1.metrics.power_inst_mw.value"), 250e3, 1);
    assert_string_equal(text_at(root, "gpus.1.metrics.power_inst_mw.source"),
                        "nvmlDeviceGetFieldValues 186");
    assert_true(number_at(root, "gpus.1.metrics.power_inst_mw.latency_s") > 0);
    assert_true(json_is_null(json_at(root, "gpus.1.metrics.power_inst_mw.missing_because")));
    assert_true(json_is_null(json_at(root, "gpus.0.metrics.power_mem_mw.value")));
    assert_string_equal(text_at(root, "gpus.0.metrics.power_mem_mw.missing_because"),
                        "not supported by this GPU or driver");
    json_decref(root);
    struct program_result text = run_program("doctor --gpus 1");
    assert_int_equal(text.exit_code, 0);
    static const char *const parts[] = {
        "ok       GPUs              of NVIDIA, driver ",
        ": 1 GPU\n",
        "ok       GPU 1             NVIDIA ",
        "ok       GPU 1 energy      the counter updates every ",
        "\nGPU 1, every metric: ",
        "\nok       GPU temperature                      61 °C ",
        "\nmissing  memory power                    not supported by this GPU or driver\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text.out.data, parts[i]))
            fail_msg("expected \"%s\" in:\n%s", parts[i], text.out.data);
    erg_text_release(&text.out);
}

static void test_missing_gpus(void **state)
{
    (void)state;
    set_world("gpus 5\n"
              "gpu * power 0=100\n"
              "gpu * limit 500\n"
              "gpu * counter 0.05 0.01\n"
              "gpu 0 fail GetTotalEnergyConsumption 3 0 1000\n"
              "gpu 0 fail field83 3 0 1000\n"
              "gpu 1 hang GetFieldValues 0 60\n"
              "gpu 2 reasons 20 0 1000\n"
              "gpu 3 gain 1.5\n"
              "gpu 4 fail GetHandleByIndex 16\n");
    json_t *root = run_json("doctor --json", 0);
    assert_string_equal(text_at(finding(root, 0, "energy"), "state"), "limited");
    assert_non_null(strstr(text_at(finding(root, 0, "energy"), "fact"), "no energy counter"));
    assert_string_equal(text_at(finding(root, 1, "GPU"), "state"), "missing");
    assert_non_null(strstr(text_at(finding(root, 1, "GPU"), "fact"), "does not answer"));
    assert_false(json_is_true(json_at(root, "gpus.1.answers")));
    assert_string_equal(text_at(finding(root, 2, "throttled"), "fact"),
                        "the clock is throttled now: too hot");
    assert_string_equal(text_at(finding(root, 3, "two sources"), "state"), "limited");
    assert_string_equal(text_at(finding(root, 4, "GPU"), "state"), "missing");
    assert_string_equal(text_at(finding(root, 4, "GPU"), "fact"),
                        "it does not work: the GPU needs a reset");
    json_decref(root);
    root = run_json("doctor --json --gpus 7", 0);
    assert_non_null(strstr(text_at(finding(root, -1, "GPUs"), "fact"), "no GPU 7"));
    assert_non_null(strstr(text_at(finding(root, -1, "GPUs"), "advice"), "--gpus all"));
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_driver),
        cmocka_unit_test(test_working_gpus),
        cmocka_unit_test(test_missing_gpus),
    };
    return run_side_by_side(tests, sizeof tests / sizeof *tests, commands_begin, remove_folder);
}
