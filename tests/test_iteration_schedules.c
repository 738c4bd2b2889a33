/*
 * Schedules of pipelines: the order of the instructions of every stage.
 */
#include "base/text.h"
#include "iteration_world.h"

/* "F0 F1 B0 …", chunk after a dot when there are several. */
static void describe(const struct erg_schedule *schedule, size_t stage, struct erg_text *out)
{
    for (size_t i = stage * schedule->per_stage; i < (stage + 1) * schedule->per_stage; i++) {
        const struct erg_instruction *instruction = &schedule->instructions[i];
        assert_int_equal(instruction->stage, stage);
        erg_text_printf(out, "%s%c%u", out->count ? " " : "",
                        instruction->direction == ERG_FORWARD ? 'F' : 'B', instruction->microbatch);
        if (schedule->pipeline.chunks > 1)
            erg_text_printf(out, ".%u", instruction->chunk);
    }
}

static void check_order(const struct erg_pipeline *pipeline, size_t stage, const char *expected)
{
    struct erg_schedule schedule;
    struct erg_error err;
    struct erg_text text = {0};
    assert_ok(erg_schedule_init(&schedule, pipeline, &err), &err);
    describe(&schedule, stage, &text);
    assert_string_equal(text.data, expected);
    erg_text_release(&text);
    erg_schedule_release(&schedule);
}

static void test_schedules(void **state)
{
    (void)state;
    struct erg_pipeline plain = pipeline_1f1b(3, 4);
    check_order(&plain, 0, "F0 F1 F2 B0 F3 B1 B2 B3");
    check_order(&plain, 1, "F0 F1 B0 F2 B1 F3 B2 B3");
    check_order(&plain, 2, "F0 B0 F1 B1 F2 B2 F3 B3");
    struct erg_pipeline few = pipeline_1f1b(4, 2);
    check_order(&few, 0, "F0 F1 B0 B1");
    struct erg_pipeline one = pipeline_1f1b(1, 1);
    check_order(&one, 0, "F0 B0");
    struct erg_pipeline interleaved = {.stages = 2, .microbatches = 4, .chunks = 2};
    check_order(&interleaved, 0,
                "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
    check_order(&interleaved, 1,
                "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
    interleaved.microbatches = 2; /* as many as stages: everything is warm-up */
    check_order(&interleaved, 1, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0");
    interleaved.microbatches = 1; /* fewer */
    check_order(&interleaved, 0, "F0.0 F0.1 B0.1 B0.0");
    interleaved.microbatches = 5; /* groups of 3 and 2 */
    check_order(&interleaved, 1,
                "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 "
                "B3.1 B4.1 B3.0 B4.0");
}

/* Each instruction is there once, and no stage waits for itself: erg_schedule_init() checks that
 * what it has ordered is everything. */
static void test_any_number_of_microbatches_interleaves(void **state)
{
    (void)state;
    struct erg_pipeline pipeline = {0};
    struct erg_schedule schedule;
    struct erg_error err;
    for (pipeline.stages = 1; pipeline.stages <= 7; pipeline.stages++)
        for (pipeline.chunks = 2; pipeline.chunks <= 4; pipeline.chunks++)
            for (pipeline.microbatches = 1; pipeline.microbatches <= 30; pipeline.microbatches++) {
                assert_ok(erg_schedule_init(&schedule, &pipeline, &err), &err);
                uint8_t *seen = erg_xcalloc(schedule.count, sizeof *seen);
                for (size_t i = 0; i < schedule.count; i++) {
                    const struct erg_instruction *instruction = &schedule.instructions[i];
                    assert_true(instruction->microbatch < pipeline.microbatches);
                    assert_true(instruction->chunk < pipeline.chunks);
                    size_t place = erg_table_index(&pipeline, instruction) * pipeline.microbatches +
                                   instruction->microbatch;
                    assert_int_equal(seen[place]++, 0);
                }
                free(seen);
                erg_schedule_release(&schedule);
            }
}

static void test_impossible_pipelines(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_pipeline pipeline = pipeline_1f1b(0, 4);
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "must be at least 1");
    pipeline = pipeline_1f1b(4, 4);
    pipeline.chunks = 0;
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "must be at least 1");
    pipeline.chunks = 2;
    assert_ok(erg_pipeline_check(&pipeline, &err), &err);
    pipeline = pipeline_1f1b(2, 2);
    pipeline.hop_latency_s = (const double[]){0, NAN};
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "latency");
    pipeline = pipeline_1f1b(2, 2);
    pipeline.hop_latency_s = (const double[]){-1e-3, 0};
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "latency");
    pipeline = pipeline_1f1b(2, 2);
    pipeline.blocking_power_w = -1;
    assert_fails(erg_pipeline_check(&pipeline, &err), &err, "blocking power");
    assert_int_equal(err.status, ERG_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_any_number_of_microbatches_interleaves),
        cmocka_unit_test(test_impossible_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
