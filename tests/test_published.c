/*
 * What the published study found and the emulated device must show, through the whole of
 * `ergon optimize` with sensors and noise: the order of the methods on every workload with tensor
 * parallelism alone, and the return to sequential execution on the smallest workload.
 */
#include "check.h"

#include "job/job.h"
#include "optimize/optimize.h"

static struct erg_plan *optimize(const char *workload)
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
    struct erg_plan *plan;
    assert_ok(erg_optimize(&request, &plan, &err), &err);
    unlink(store);
    erg_job_free(job);
    return plan;
}

static double fastest_energy(const struct erg_plan *plan, enum erg_method method)
{
    return plan->methods[method].points[0].energy_j;
}

static void energy_falls_from_method_to_method(void **state)
{
    (void)state;
    static const char *const workloads[] = {
        "llama3.2-3b_tp8_mbs8_seq4096", "qwen3-1.7b_tp8_mbs8_seq4096",
        "qwen3-1.7b_tp8_mbs8_seq8192", "qwen3-1.7b_tp8_mbs16_seq4096"};
    static const enum erg_method methods[] = {ERG_METHOD_SEQUENTIAL, ERG_METHOD_SEQUENTIAL_CLOCKS,
                                              ERG_METHOD_NANOBATCHING_CLOCKS, ERG_METHOD_ERGON};
    for (size_t w = 0; w < sizeof workloads / sizeof *workloads; w++) {
        struct erg_plan *plan = optimize(workloads[w]);
        for (size_t i = 1; i < sizeof methods / sizeof *methods; i++)
            if (!(fastest_energy(plan, methods[i]) < fastest_energy(plan, methods[i - 1])))
                fail_msg("%s: %s needs %g J, %s %g J; expected less", workloads[w],
                         erg_method_name(methods[i]), fastest_energy(plan, methods[i]),
                         erg_method_name(methods[i - 1]), fastest_energy(plan, methods[i - 1]));
        erg_plan_free(plan);
    }
}

static void the_smallest_workload_returns_to_sequential_execution(void **state)
{
    (void)state;
    struct erg_plan *plan = optimize("qwen3-1.7b_cp2tp4_mbs8_seq4096");
    const struct erg_plan_point *point = &plan->methods[ERG_METHOD_ERGON].points[0];
    size_t sequential = 0, all = plan->schedule.count;
    for (size_t i = 0; i < all; i++)
        sequential += erg_plan_option(plan, point, i)->mode == ERG_MODE_SEQUENTIAL;
    assert_int_equal(all, 2 * 16);
    assert_true(sequential >= all * 9 / 10);
    erg_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_falls_from_method_to_method),
        cmocka_unit_test(the_smallest_workload_returns_to_sequential_execution),
    };
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}
