/* Questions of ergon/ask.h, through the public headers alone: their answers in each form. */
#include "check.h"
#include "folder.h"

#include <ergon/ergon.h>

#include <stdio.h>
#include <string.h>

static const char *write_profile(void)
{
    static const char rows[] = "stage,instruction,frequency,time,energy\n"
                               "0,forward,1410,0.010,4\n0,forward,1200,0.012,3\n"
                               "0,backward,1410,0.020,8\n0,backward,1200,0.024,6\n";
    write_text("profile.csv", rows);
    return in_folder("profile.csv");
}

static struct erg_ask_frontier frontier_of(const char *profile)
{
    static const double waiting_w = 80;
    return (struct erg_ask_frontier){.size = sizeof(struct erg_ask_frontier),
                                     .profile = profile,
                                     .microbatches = 4,
                                     .blocking_power_w = &waiting_w};
}

/* Four microbatches of 10 + 20 ms and 4 + 8 J at the highest clock; of 12 + 24 ms and 3 + 6 J at
 * the lowest. */
static void a_frontier_has_three_forms(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_answer *answer;
    struct erg_ask_frontier question = frontier_of(write_profile());
    double time_s, energy_j;
    assert_ok(erg_ask_frontier(&answer, &question, &err), &err);
    const char *csv = strchr(erg_answer_csv(answer), '\n') + 1, *last = strrchr(csv, '0');
    assert_int_equal(sscanf(csv, "%lf,%lf", &time_s, &energy_j), 2);
    assert_close(time_s, 0.120, 1e-9);
    assert_close(energy_j, 48, 1e-9);
    assert_non_null(last);
    assert_non_null(strstr(csv, "0.144"));
    assert_non_null(
        strstr(erg_answer_text(answer),
               "Compared with every instruction at its highest clock: 0.120000 s, 48.000 J."));
    assert_non_null(strstr(erg_answer_json(answer), "\"highest_clock\""));
    assert_ok(erg_answer_check(answer, &err), &err);
    erg_answer_free(answer);

    question.deadline_s = 0.15;
    assert_ok(erg_ask_frontier(&answer, &question, &err), &err);
    csv = strchr(erg_answer_csv(answer), '\n') + 1;
    assert_int_equal(sscanf(csv, "%lf,%lf", &time_s, &energy_j), 2);
    assert_close(time_s, 0.144, 1e-9);
    assert_close(energy_j, 36, 1e-9);
    assert_ptr_equal(strchr(csv, '\n') + 1, csv + strlen(csv)); /* that one alone */
    erg_answer_free(answer);
    erg_answer_free(NULL);
}

static void a_plan_of_it_has_a_programme(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_answer *answer;
    struct erg_ask_frontier question = frontier_of(write_profile());
    char plan[4096];
    snprintf(plan, sizeof plan, "%s", in_folder("plan.json"));
    question.plan = plan;
    question.deadline_s = 0.15;
    assert_ok(erg_ask_frontier(&answer, &question, &err), &err);
    erg_answer_free(answer);
    struct erg_ask_programme programme = {.size = sizeof programme, .plan = plan};
    assert_ok(erg_ask_programme(&answer, &programme, &err), &err);
    assert_non_null(strstr(erg_answer_text(answer), "an iteration of 0.1440 s."));
    assert_non_null(strstr(erg_answer_json(answer), "\"clock_mhz\": 1200"));
    assert_null(erg_answer_csv(answer));
    erg_answer_free(answer);
    programme.stage = 1;
    assert_fails(erg_ask_programme(&answer, &programme, &err), &err, "stage");
    programme.plan = NULL;
    assert_fails(erg_ask_programme(&answer, &programme, &err), &err, "expected a plan");
}

static void a_plan_contains_its_selected_point(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_answer *answer;
    struct erg_plan *plan;
    struct erg_ask_frontier question = frontier_of(write_profile());
    char path[4096];
    snprintf(path, sizeof path, "%s", in_folder("plan.json"));
    question.plan = path;
    assert_ok(erg_ask_frontier(&answer, &question, &err), &err);
    erg_answer_free(answer);
    assert_ok(erg_plan_open(&plan, path, &err), &err);
    assert_non_null(strstr(erg_plan_chosen_text(plan), "Stage 0: (F1 B1) x4"));
    assert_null(strstr(erg_plan_chosen_text(plan), "If another pipeline takes"));
    const struct erg_plan_goal held = {.size = sizeof held, .straggler_s = 0.2};
    assert_ok(erg_plan_choose(plan, &held, &err), &err);
    assert_non_null(strstr(erg_plan_chosen_text(plan), "If another pipeline takes 0.2000 s: "));
    assert_non_null(strstr(erg_plan_chosen_json(plan), "\"held_until_s\""));
    erg_plan_free(plan);
}

static void wrong_questions_are_refused(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_answer *answer;
    struct erg_ask_frontier question = frontier_of(in_folder("nothing.csv"));
    assert_fails(erg_ask_frontier(&answer, &question, &err), &err, "nothing.csv");
    question.microbatches = 0;
    assert_fails(erg_ask_frontier(&answer, &question, &err), &err, "microbatches from 1 on");
    question = frontier_of("profile.csv");
    question.deadline_s = question.energy_j = 1;
    assert_fails(erg_ask_frontier(&answer, &question, &err), &err, "exclude each other");
    const struct erg_ask_trace both = {.size = sizeof both,
                                       .cluster = "c.yaml",
                                       .profiles = ".",
                                       .recipe = "r.yaml",
                                       .log = "log.csv"};
    assert_fails(erg_ask_trace(&answer, &both, &err), &err, "a recipe or a log");
    const struct erg_ask_verify layers = {
        .size = sizeof layers, .job = "j.yaml", .plan = "p.json", .layers = 1};
    assert_fails(erg_ask_verify(&answer, &layers, &err), &err, "2 to 1000 layers");
    const struct erg_ask_fit fit = {
        .size = sizeof fit, .engine = "ergon", .keys = "gemm_efficiency"};
    assert_fails(erg_ask_fit(&answer, &fit, &err), &err, "rows or runs");
    const struct erg_ask_train run = {.size = sizeof run};
    assert_fails(erg_ask_train(&answer, &run, &err), &err, "expected a job");
    const struct erg_ask_submit submit = {
        .size = sizeof submit, .live = "live.yaml", .job = "job.yaml", .resume = "folder"};
    assert_fails(erg_ask_submit(&answer, &submit, &err), &err, "a folder to resume");
    const struct erg_ask_jobs jobs = {.size = sizeof jobs};
    assert_fails(erg_ask_jobs(&answer, &jobs, &err), &err, "live file");
}

static void words_end_and_are_accepted(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_answer *answer;
    assert_null(erg_words((enum erg_word_list)0));
    assert_null(erg_words((enum erg_word_list)(ERG_WORDS_TRAIN_TYPE + 1)));
    for (int list = ERG_WORDS_ACCOUNTING; list <= ERG_WORDS_TRAIN_TYPE; list++) {
        size_t count = 0;
        for (const char *const *words = erg_words((enum erg_word_list)list); words[count]; count++)
            assert_true(words[count][0] != '\0');
        assert_in_range(count, 2, 5);
    }
    assert_string_equal(erg_words(ERG_WORDS_TRAIN_TYPE)[ERG_TRAIN_FLOAT32], "float32");
    /* A word of the list is passed, and the job that is not there named; another word is not. */
    struct erg_ask_memory question = {.size = sizeof question, .job = "nothing.yaml"};
    for (const char *const *word = erg_words(ERG_WORDS_RECOMPUTE); *word; word++) {
        question.recompute = *word;
        assert_fails(erg_ask_memory(&answer, &question, &err), &err, "nothing.yaml");
    }
    question.recompute = "everything";
    assert_fails(erg_ask_memory(&answer, &question, &err), &err, "expected one of none, norms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frontier_has_three_forms),
        cmocka_unit_test(a_plan_of_it_has_a_programme),
        cmocka_unit_test(a_plan_contains_its_selected_point),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(words_end_and_are_accepted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
