/*
 * Stage profiles: reading them, what plans of measured ones save, the peer's plans, and the command
 * ergon frontier.
 */
#include "io/file.h"
#include "io/json.h"
#include "iteration_world.h"
#include "json_file.h"
#include "plan/plan.h"
#include "program.h"

#define HEADER "stage,instruction,frequency,time,energy\n"
#define GOOD "0,forward,1400,0.1,30\n0,backward,1400,0.2,60\n"

static void check_profile_error(const char *text, const char *part)
{
    struct erg_profile profile;
    struct erg_error err;
    if (erg_profile_parse(&profile, "p.csv", text, strlen(text), &err) == 0)
        fail_msg("read, expected an error with \"%s\":\n%s", part, text);
    if (!strstr(err.message, part) || !strstr(err.message, "p.csv"))
        fail_msg("said \"%s\", expected \"%s\"", err.message, part);
}

static void test_profiles(void **state)
{
    (void)state;
    struct erg_profile profile;
    struct erg_error err;
    const char *text = HEADER GOOD "0,forward,1200,0.12,28\n0,backward,1200,0.24,55\n";
    assert_ok(erg_profile_parse(&profile, "p.csv", text, strlen(text), &err), &err);
    assert_int_equal(profile.virtual_stages, 1);
    assert_int_equal(profile.tables[1].count, 2);
    assert_int_equal(profile.tables[1].points[1].recipe, 1200);
    assert_near(profile.tables[1].points[1].energy_j, 55, 0);
    erg_profile_release(&profile);

    check_profile_error("", "p.csv");
    check_profile_error(HEADER, "no rows");
    check_profile_error("stage,instruction,clock,time,energy\n" GOOD, "frequency");
    check_profile_error(HEADER "0,forward,1400,nan,30\n", "time");
    check_profile_error(HEADER "0,forward,1400,0.1,-3\n", "p.csv:2");
    check_profile_error(HEADER "0,forward,1400,0.1,-3\n", "column 'energy' is -3");
    check_profile_error(HEADER "0,forward,1400,0,3\n", "column 'time' is 0");
    check_profile_error(HEADER "0,forwards,1400,0.1,3\n", "must be forward or backward");
    check_profile_error(HEADER "-1,forward,1400,0.1,3\n", "numbered from 0");
    check_profile_error(HEADER "0,forward,0,0.1,3\n", "column 'frequency' is 0");
    check_profile_error(HEADER GOOD "0,forward,1400,0.1,30\n",
                        "measured twice, here and in line 2");
    check_profile_error(HEADER "0,forward,1400,0.1,30\n", "no rows with instruction \"backward\"");
    check_profile_error(HEADER GOOD "2,forward,1400,0.1,30\n2,backward,1400,0.1,30\n",
                        "stage 1 has no rows");
    check_profile_error(HEADER GOOD "0,forward,1200,0.1,30\n",
                        "p.csv:4: the clock 1200 MHz is measured for stage 0 forward in this row, "
                        "but not for stage 0 backward");
    check_profile_error(HEADER GOOD "0,backward,1300,0.1,30\n", "but not for stage 0 forward");
}

/* Stages that name their chunks are those of the pipeline: virtual stages are chunk by chunk. */
static void chunks_are_virtual_stages(void **state)
{
    (void)state;
    struct erg_profile profile;
    struct erg_error err = {0};
    const char *text = HEADER "0,forward/0,1400,0.10,1\n0,forward/1,1400,0.11,2\n"
                              "0,backward/0,1400,0.20,3\n0,backward/1,1400,0.21,4\n"
                              "1,forward,1400,0.12,5\n1,forward/1,1400,0.13,6\n"
                              "1,backward/0,1400,0.22,7\n1,backward/1,1400,0.23,8\n";
    static const double energies_j[] = {1, 3, 5, 7, 2, 4, 6, 8};
    assert_ok(erg_profile_parse(&profile, "p.csv", text, strlen(text), &err), &err);
    assert_int_equal(profile.virtual_stages, 4);
    assert_int_equal(profile.chunks, 2);
    for (int table = 0; table < 8; table++)
        assert_near(profile.tables[table].points[0].energy_j, energies_j[table], 0);
    erg_profile_release(&profile);
    check_profile_error(HEADER "0,forward/x,1400,0.1,3\n", "or one of a chunk from 0");
    check_profile_error(HEADER "0,forward/-1,1400,0.1,3\n", "or one of a chunk from 0");
    check_profile_error(HEADER "0,forward/,1400,0.1,3\n", "or one of a chunk from 0");
    check_profile_error(HEADER "0,forward1,1400,0.1,3\n", "must be forward or backward");
    check_profile_error(
        HEADER GOOD "0,forward/1,1400,0.1,3\n",
        "stage 0 has no rows with instruction \"backward/1\"; every stage from 0 to "
        "0 needs forward and backward of every chunk");
    check_profile_error(HEADER "0,forward/1,1400,0.1,30\n0,forward/1,1400,0.1,30\n",
                        "stage 0 forward/1 at 1400 MHz is measured twice");
}

/* As Zeus writes it: a row for every rank, which are one point of the slowest time and mean energy.
 */
static void ranks_are_merged(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_profile profile;
#define RANKED "rank,dp_rank,pp_rank,tp_rank," HEADER
    static const char text[] = RANKED "0,0,0,0,0,forward,1410,0.100,40\n"
                                      "0,0,0,0,0,forward,1200,0.110,34\n"
                                      "0,0,0,0,0,backward,1410,0.200,85\n"
                                      "0,0,0,0,0,backward,1200,0.230,75\n"
                                      "1,0,0,1,0,forward,1410,0.102,41\n"
                                      "1,0,0,1,0,forward,1200,0.112,35\n"
                                      "1,0,0,1,0,backward,1410,0.202,86\n"
                                      "1,0,0,1,0,backward,1200,0.230,76\n";
    assert_ok(erg_profile_parse(&profile, "z.csv", text, strlen(text), &err), &err);
    assert_int_equal(profile.virtual_stages, 1);
    const struct erg_frontier *forward = &profile.tables[ERG_FORWARD];
    const struct erg_frontier *backward = &profile.tables[ERG_BACKWARD];
    assert_int_equal(forward->count, 2);
    assert_int_equal(forward->points[0].recipe, 1410);
    assert_near(forward->points[0].time_s, 0.102, 0);
    assert_near(forward->points[0].energy_j, 40.5, 0);
    assert_near(forward->points[1].energy_j, 34.5, 0);
    assert_near(backward->points[0].time_s, 0.202, 0);
    assert_near(backward->points[0].energy_j, 85.5, 0);
    assert_near(backward->points[1].time_s, 0.230, 0);
    erg_profile_release(&profile);
    check_profile_error(
        RANKED "0,0,0,0,0,forward,1400,0.1,30\n0,0,0,0,0,forward,1400,0.1,30\n",
        "p.csv:3: stage 0 forward at 1400 MHz is measured twice, here and in line 2");
    check_profile_error(
        RANKED "0,0,0,0,0,forward,1400,0.1,30\n1,0,0,1,0,forward,1400,0.1,30\n"
               "0,0,0,0,0,forward,1200,0.1,30\n",
        "p.csv:3: stage 0 forward has rows of 2 ranks at 1400 MHz, but of 1 at 1200 "
        "MHz");
    check_profile_error(RANKED "x,0,0,0,0,forward,1400,0.1,30\n", "p.csv:2: column 'rank'");
}

/* Saved at the fastest point against all at the highest clock, and lost by rounding at any, in per
 * cent. */
static void check_measured(const char *name, size_t microbatches, double power_w, double percent,
                           double largest_loss)
{
    char file[128];
    snprintf(file, sizeof file, "perseus/stage_profile/%s.csv", name);
    const char *path = shared_data(file);
    skip_without(path, "perseus/stage_profile");
    struct erg_profile profile;
    struct erg_error err;
    assert_ok(erg_profile_load(&profile, path, &err), &err);
    struct erg_iteration_request request = {.pipeline =
                                                pipeline_1f1b(profile.virtual_stages, microbatches),
                                            .tables = profile.tables,
                                            .points = 20};
    request.pipeline.blocking_power_w = power_w;
    struct erg_iteration iteration;
    solve(&iteration, &request);
    uint32_t *highest = erg_xcalloc(iteration.schedule.count, sizeof *highest);
    double time_s, energy_j;
    erg_profile_highest_clock(&iteration.schedule, profile.tables, highest);
    erg_iteration_evaluate(&iteration.schedule, profile.tables, highest, NULL, &time_s, &energy_j);
    free(highest);
    const struct erg_iteration_plan *plan = &iteration.plans[iteration.frontier.points[0].recipe];
    assert_true(plan->time_s <= time_s);
    double saved = 100 * (1 - plan->energy_j / energy_j);
    if (saved < percent)
        fail_msg("%s, %zu microbatches: saved %.2f%%, expected %.1f%%", name, microbatches, saved,
                 percent);
    erg_iteration_release(&iteration);
    double loss = losses_of(&request).worst;
    if (loss > largest_loss)
        fail_msg("%s, %zu microbatches: rounding costs up to %.2f%%, expected %.1f%%", name,
                 microbatches, loss, largest_loss);
    erg_profile_release(&profile);
}

static void test_measured_profiles_match_published_savings(void **state)
{
    (void)state;
    check_measured("gpt3-175b_a100-sxm_bf16", 12, 83.64, 15.2, 0.2);
    check_measured("gpt3-175b_a100-sxm_bf16", 48, 83.64, 13.6, 0.25);
    check_measured("bloom-176b_a40_bf16", 12, 70.38, 7.0, 0.3);
    check_measured("bloom-176b_a40_bf16", 48, 70.38, 4.0, 0.3);
}

static json_t *load_case(const char *name, const char *suffix)
{
    char path[4096];
    struct erg_error err;
    json_t *root;
    snprintf(path, sizeof path, "%s/tests/data/perseus_cases/%s%s", ERGON_TEST_SOURCE_DIR, name,
             suffix);
    assert_ok(load_json(&root, path, &err), &err);
    return root;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void check_against_peer(const char *name)
{
    json_t *input = load_case(name, ".json"), *peer = load_case(name, ".lowtime.json");
    json_t *stages = json_object_get(input, "stages");
    size_t count = 2 * json_array_size(stages);
    struct erg_frontier *tables = erg_xcalloc(count, sizeof *tables);
    for (size_t t = 0; t < count; t++) {
        json_t *option,
            *list = json_object_get(json_array_get(stages, t / 2), t % 2 ? "backward" : "forward");
        size_t o;
        json_array_foreach(list, o, option)
            erg_frontier_add(&tables[t], number(option, "time_s"), number(option, "energy_J"),
                             (int64_t)number(option, "freq"));
    }
    struct erg_iteration_request request = {
        .pipeline = pipeline_1f1b(count / 2, (size_t)number(input, "num_microbatches")),
        .tables = tables};
    request.pipeline.blocking_power_w = number(input, "p2p_power_W");

    /* Its realised points: [5] time, [6] energy; a good dozen of them, as deadlines of ours. */
    json_t *points = json_object_get(peer, "frontier");
    size_t step = json_array_size(points) / 12;
    double deadlines[16], energies[16], ratio = 0;
    for (size_t i = 0; i < json_array_size(points); i += step) {
        json_t *point = json_array_get(points, i);
        deadlines[request.deadline_count] =
            json_number_value(json_array_get(point, 5)) + 1e-6; /* six digits */
        energies[request.deadline_count++] = json_number_value(json_array_get(point, 6));
    }
    request.deadlines_s = deadlines;
    struct erg_iteration iteration;
    solve(&iteration, &request);
    for (size_t i = 0; i < request.deadline_count; i++) {
        const struct erg_iteration_plan *plan;
        plan = pick(&iteration, DEADLINE(deadlines[i]));
        double energy = plan->energy_j;
        assert_true(energy <= energies[i] * 1.001);
        ratio += energy / energies[i] / (double)request.deadline_count;
    }
    assert_true(ratio < 0.999);
    erg_iteration_release(&iteration);
    free_tables(tables, count);
    json_decref(peer);
    json_decref(input);
}

static void test_realised_plans_beat_the_peer(void **state)
{
    (void)state;
    check_against_peer("s2_m8");
    check_against_peer("s4_m16");
}

static void write_profile(const char *path)
{
    struct erg_error err;
    struct erg_text text = {0};
    struct erg_frontier *tables = random_tables(3, 8, 12);
    erg_text_add(&text, HEADER);
    for (size_t t = 0; t < 8; t++)
        for (size_t o = 0; o < tables[t].count; o++)
            erg_text_printf(&text, "%zu,%s,%d,%.9g,%.9g\n", t / 2, t % 2 ? "backward" : "forward",
                            (int)(1400 - 30 * o), tables[t].points[o].time_s,
                            tables[t].points[o].energy_j);
    assert_ok(erg_file_write(path, text.data, text.count, &err), &err);
    erg_text_release(&text);
    free_tables(tables, 8);
}

static void test_frontier_command(void **state)
{
    (void)state;
    char folder[] = "/tmp/ergon-test-XXXXXX", arguments[512];
    assert_non_null(mkdtemp(folder));
    char profile[64], plan[64];
    snprintf(profile, sizeof profile, "%s/p.csv", folder);
    snprintf(plan, sizeof plan, "%s/plan.json", folder);
    write_profile(profile);
    static const struct {
        const char *options;
        int exit_code;
        const char *part;
    } cases[] = {
        {"-m 8 -p 80 --format csv", 0, "time_s,energy_j,planned_time_s,planned_energy_j\n"},
        {"-m 8 -p 80", 0, "points; --format csv prints all"},
        {"-m 8 -p 80 --points 10 --json", 0, "\"schema_version\": 1"},
        {"-m 8 -p 80 --points 5 --unit 0.001 --p2p-latency 0.001", 0, "planned_energy_j"},
        {"-m 8 -p 80 --schedule interleaved --virtual-stages 2 -f csv", 0, "time_s"},
        {"-m 8 -p 80 --deadline 2.2 -f csv", 0, "\n2.1"},
        {"-m 8 -p 80 --points 10 --energy-budget 2500 -f csv", 0, "time_s"},
        {"-m 8 --points 10 2>&1 >/dev/null", 0, "default of --blocking-power"},
        {"-m 8 --points 10 -q 2>&1 >/dev/null", 0, ""},
        {"-m 8 -p 80 --deadline 0.2 2>&1", 3, "cannot be met"},
        {"-m 8 -p 80 --points 10 --energy-budget 2 2>&1", 3, "cheapest needs"},
        {"-m 8 -p 80 --deadline 2 --energy-budget 2 2>&1", 2, "exclude each other"},
        {"-p 80 2>&1", 2, "needs the option --microbatches"},
        {"-m 0 2>&1", 2, "expected a value between 1"},
        {"-m 8 -p 80 --virtual-stages 3 --schedule interleaved 2>&1", 2,
         "expected a multiple of --virtual-stages"},
        {"-m 7 -p 80 --virtual-stages 2 --schedule interleaved -f csv", 0, "time_s"},
        {"-m 8 -p 80 --virtual-stages 2 2>&1", 2, "expected --schedule interleaved"},
        {"-m 8 -p 80 --schedule interleaved 2>&1", 2, "expected --virtual-stages"},
        {"-m 8 -p 80 --schedule gpipe 2>&1", 2, "expected one of \"1f1b\", \"interleaved\""},
        {"-m 8 -p 80 --points 10 --plan /nonexistent/plan.json 2>&1", 1, "/nonexistent/plan.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(arguments, sizeof arguments, "frontier %s %s", profile, cases[i].options);
        check_program(arguments, cases[i].exit_code, cases[i].part);
    }
    snprintf(arguments, sizeof arguments, "frontier %s/none.csv -m 8 2>&1", folder);
    check_program(arguments, 1, "none.csv");
    snprintf(arguments, sizeof arguments, "frontier %s -m 8 -p 80 --deadline 2.2 --plan %s",
             profile, plan);
    check_program(arguments, 0, "time_s");
    struct erg_error err;
    struct erg_plan *written;
    assert_ok(erg_plan_load(&written, plan, &err), &err);
    assert_int_equal(written->schedule.count, 4 * 8 * 2);
    const struct erg_plan_point *chosen =
        &written->methods[written->selected.method].points[written->selected.point];
    assert_true(chosen->time_s <= 2.2 && chosen->time_s > 2.1);
    assert_true(isnan(chosen->static_energy_j)); /* a profile does not say */
    erg_plan_free(written);
    snprintf(arguments, sizeof arguments, "show %s", plan);
    check_program(arguments, 0, "the least energy within the deadline");
    /* Of chunks, the schedule has to be one that has them. */
    FILE *chunked = fopen(profile, "w");
    assert_non_null(chunked);
    fputs(HEADER "0,forward/0,1400,0.10,9\n0,forward/1,1400,0.11,9\n"
                 "0,backward/0,1400,0.20,9\n0,backward/1,1400,0.21,9\n",
          chunked);
    fclose(chunked);
    snprintf(arguments, sizeof arguments, "frontier %s -m 8 -p 80 2>&1", profile);
    check_program(arguments, 2,
                  "has 2 chunks of each stage; expected --schedule interleaved --virtual-stages 2");
    snprintf(arguments, sizeof arguments,
             "frontier %s -m 8 -p 80 --schedule interleaved --virtual-stages 2", profile);
    check_program(arguments, 0, "time_s");
    unlink(plan);
    unlink(profile);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_measured_profiles_match_published_savings),
        cmocka_unit_test(test_realised_plans_beat_the_peer),
        cmocka_unit_test(test_frontier_command),
        cmocka_unit_test(chunks_are_virtual_stages),
        cmocka_unit_test(ranks_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
