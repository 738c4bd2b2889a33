/*
 * Which point of a plan each of several pipelines runs next, by how long their ranks worked: two
 * stages of two tensor ranks each, on the plan of a published workload.
 */
#include "check.h"

#include "plan/plan_follow.h"
#include "train/engine/straggler.h"

enum { STAGES = 2, TENSOR = 2, DATA = 3, WORLD = STAGES * TENSOR * DATA };

static struct erg_plan *plan;
static const struct erg_layout layout = {
    .tensor = TENSOR, .context = 1, .pipeline = STAGES, .data = DATA, .virtual_stages = 1};

static int load_plan(void **state)
{
    (void)state;
    struct erg_error err = {0};
    const struct erg_goal fastest = {.objective = ERG_FASTEST};
    const struct erg_plan_input input = {.method = "ergon", .goal = &fastest};
    assert_ok(erg_plan_load(&plan, ERGON_TEST_SOURCE_DIR "/tests/data/plan_sample.json", &err),
              &err);
    assert_ok(erg_plan_select(plan, &input, &err), &err);
    assert_int_equal(plan->selected.point, 0);
    return 0;
}

static int free_plan(void **state)
{
    (void)state;
    erg_plan_free(plan);
    return 0;
}

/* What a pipeline's ranks took at the points that they run: so many times what was planned. */
struct pipelines {
    size_t point[DATA];
    double pace[DATA][STAGES];
};

static void fill(struct erg_rank_pace *ranks, const struct pipelines *p)
{
    for (size_t rank = 0; rank < WORLD; rank++) {
        const size_t tensor = rank % TENSOR, data = rank / TENSOR % DATA,
                     stage = rank / TENSOR / DATA;
        double planned[STAGES];
        erg_plan_stage_seconds(plan, &plan->methods[ERG_METHOD_ERGON].points[p->point[data]],
                               planned);
        /* The other rank of a stage is faster, and does not count. */
        ranks[rank] = (struct erg_rank_pace){
            planned[stage] * p->pace[data][stage] * (tensor ? 0.9 : 1), p->point[data]};
    }
}

static size_t next_of(const struct pipelines *p, long data)
{
    struct erg_rank_pace ranks[WORLD];
    struct erg_error err = {0};
    size_t point = SIZE_MAX;
    fill(ranks, p);
    assert_ok(erg_straggler_point(&point, plan, &layout, ranks, data, &err), &err);
    return point;
}

static void no_pipeline_is_late(void **state)
{
    (void)state;
    const struct pipelines p = {.pace = {{1, 1}, {1.01, 1}, {1, 1.01}}};
    const struct pipelines slow = {.pace = {{1.5, 1.5}, {1.5, 1.5}, {1.5, 1.5}}};
    for (long data = 0; data < DATA; data++) {
        assert_int_equal(next_of(&p, data), 0);
        assert_int_equal(next_of(&slow, data), 0); /* all alike */
    }
}

static void others_follow_the_late_one(void **state)
{
    (void)state;
    const struct erg_plan_method *method = &plan->methods[ERG_METHOD_ERGON];
    const struct pipelines p = {.pace = {{1, 1}, {1.15, 1.15}, {1, 1}}};
    struct pipelines then = p;
    assert_int_equal(next_of(&p, 1), 0);
    const size_t followed = next_of(&p, 0);
    assert_true(followed > 0);
    assert_int_equal(next_of(&p, 2), followed);
    /* In time, and with less energy. */
    assert_true(method->points[followed].time_s <= 1.15 * method->points[0].time_s);
    assert_true(method->points[followed].energy_j < method->points[0].energy_j);
    /* There they stay while it is late, and go back when it is not. */
    then.point[0] = then.point[2] = followed;
    assert_int_equal(next_of(&then, 0), followed);
    assert_int_equal(next_of(&then, 1), 0);
    then.pace[1][0] = then.pace[1][1] = 1;
    assert_int_equal(next_of(&then, 0), 0);
}

static void the_late_one_changes(void **state)
{
    (void)state;
    struct pipelines p = {.pace = {{1, 1}, {1.15, 1.15}, {1, 1}}};
    const size_t followed = next_of(&p, 0);
    p.point[0] = p.point[2] = followed;
    p.pace[1][0] = p.pace[1][1] = 1;
    p.pace[0][0] = p.pace[0][1] = 1.15; /* at its slower point */
    assert_int_equal(next_of(&p, 0), 0);
    assert_int_equal(next_of(&p, 1), followed);
}

static void not_known_is_no_lateness(void **state)
{
    (void)state;
    const struct pipelines p = {.point = {3, 0, 0}, .pace = {{1, 1}, {1.15, 1.15}, {1, 1}}};
    struct erg_rank_pace ranks[WORLD];
    struct erg_error err = {0};
    size_t point = SIZE_MAX;
    fill(ranks, &p);
    ranks[WORLD - 1].worked_s = NAN;
    assert_ok(erg_straggler_point(&point, plan, &layout, ranks, 0, &err), &err);
    assert_int_equal(point, 3);
    /* Nor is it where the pipeline's own first rank does not know. */
    fill(ranks, &p);
    ranks[0].worked_s = NAN;
    assert_ok(erg_straggler_point(&point, plan, &layout, ranks, 0, &err), &err);
    assert_int_equal(point, 3);
    assert_ok(erg_straggler_point(&point, plan, &layout, ranks, 1, &err), &err);
    assert_int_equal(point, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_pipeline_is_late),
        cmocka_unit_test(others_follow_the_late_one),
        cmocka_unit_test(the_late_one_changes),
        cmocka_unit_test(not_known_is_no_lateness),
    };
    return cmocka_run_group_tests(tests, load_plan, free_plan);
}
