/*
 * What the published study found and the emulated device must show, through the whole of
 * `ergon optimize` with sensors and noise: the order of the methods on every workload with tensor
 * parallelism alone, and the return to sequential execution on the smallest workload.
 */
#include "check.h"

#include "job/job.h"
#include "optimize/optimize.h"

static json_t *optimize(const char *workload)
{
    struct erg_error err = {0};
    char path[4096], store[] = "/tmp/ergon-test-XXXXXX";
    snprintf(path, sizeof path, "%s/examples/kareus/%s.yaml", ERGON_TEST_SOURCE_DIR, workload);
    struct erg_job *job;
    assert_ok(erg_job_load(&job, path, NULL, &err), &err);
    int file = mkstemp(store);
    assert_true(file >= 0);
    close(file);
    struct erg_optimize_request request = {
        .job = job, .methods = {true, true, true, true, true}, .store_path = store};
    json_t *plan;
    assert_ok(erg_optimize(&request, &plan, &err), &err);
    unlink(store);
    erg_job_free(job);
    return plan;
}

static double fastest_energy(const json_t *plan, const char *method)
{
    const json_t *points =
        json_object_get(json_object_get(json_object_get(plan, "methods"), method), "points");
    return json_real_value(json_object_get(json_array_get(points, 0), "energy_j"));
}

static void energy_falls_from_method_to_method(void **state)
{
    (void)state;
    static const char *const workloads[] = {
        "llama3.2-3b_tp8_mbs8_seq4096", "qwen3-1.7b_tp8_mbs8_seq4096",
        "qwen3-1.7b_tp8_mbs8_seq8192", "qwen3-1.7b_tp8_mbs16_seq4096"};
    static const char *const methods[] = {"sequential", "sequential+clocks", "nanobatching+clocks",
                                          "ergon"};
    for (size_t w = 0; w < sizeof workloads / sizeof *workloads; w++) {
        json_t *plan = optimize(workloads[w]);
        for (size_t i = 1; i < sizeof methods / sizeof *methods; i++)
            if (!(fastest_energy(plan, methods[i]) < fastest_energy(plan, methods[i - 1])))
                fail_msg("%s: %s needs %g J, %s %g J; expected less", workloads[w], methods[i],
                         fastest_energy(plan, methods[i]), methods[i - 1],
                         fastest_energy(plan, methods[i - 1]));
        json_decref(plan);
    }
}

static void the_smallest_workload_returns_to_sequential_execution(void **state)
{
    (void)state;
    json_t *plan = optimize("qwen3-1.7b_cp2tp4_mbs8_seq4096");
    const json_t *stages = json_object_get(plan, "stages");
    const json_t *schedule = json_object_get(plan, "schedule");
    const json_t *point = json_array_get(
        json_object_get(json_object_get(json_object_get(plan, "methods"), "ergon"), "points"), 0);
    size_t sequential = 0, all = 0;
    for (size_t s = 0; s < json_array_size(schedule); s++) {
        const json_t *instructions = json_array_get(schedule, s);
        const json_t *options = json_array_get(json_object_get(point, "options"), s);
        for (size_t i = 0; i < json_array_size(instructions); i++) {
            const char *type =
                json_string_value(json_object_get(json_array_get(instructions, i), "type"));
            const json_t *list =
                json_object_get(json_object_get(json_array_get(stages, s), type), "options");
            const json_t *option =
                json_array_get(list, (size_t)json_integer_value(json_array_get(options, i)));
            const char *mode = json_string_value(json_object_get(option, "mode"));
            sequential += strcmp(mode, "sequential") == 0;
            all++;
        }
    }
    assert_int_equal(all, 2 * 16);
    assert_true(sequential >= all * 9 / 10);
    json_decref(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_falls_from_method_to_method),
        cmocka_unit_test(the_smallest_workload_returns_to_sequential_execution),
    };
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
