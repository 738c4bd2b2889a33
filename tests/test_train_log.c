/*
 * What ergon train logs: lines of JSON and for people, event files byte for byte, the course of a
 * run, and its folder.
 */
#include "folder.h"

#include "base/memory.h"
#include "io/json.h"
#include "layout/time/time.h"
#include "report/report.h"
#include "train/log/data_watch.h"
#include "train/log/loss_watch.h"
#include "train/log/run_line.h"

#include <dirent.h>
#include <fcntl.h>

static struct erg_job *load_job(const char *more)
{
    struct erg_job *job;
    struct erg_error err;
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "model: llama-3.2-3b\n"
                    "cluster: {nodes: 1, gpus_per_node: 1, gpu: H100-SXM}\n"
                    "microbatch_size: 1\nmicrobatches: 4\nsequence: 4096\n%s"
                    "train:\n  data: [{file: tokens.bin}]\n  updates: 5000\n"
                    "  learning_rate: 0.0003\n  log_every: 10\n",
                    more);
    assert_ok(erg_job_parse(&job, "job.yaml", text.data, text.count, NULL, &err), &err);
    erg_text_release(&text);
    return job;
}

/* Numbers of a rank that measures nothing. */
static struct erg_rank_numbers unknown(void)
{
    struct erg_rank_numbers numbers = {.window_s = 0.657,
                                       .energy_j = NAN,
                                       .uncertainty_j = NAN,
                                       .measured_s = NAN,
                                       .power_w = NAN,
                                       .clock_mhz = NAN,
                                       .temperature_c = NAN,
                                       .throttled_power_s = NAN,
                                       .throttled_thermal_s = NAN,
                                       .peak_flops = NAN,
                                       .memory_bytes = NAN,
                                       .memory_outside_bytes = NAN,
                                       .bubble_s = NAN};
    for (size_t i = 0; i < ERG_EXPOSED_KINDS; i++)
        numbers.exposed_s[i] = NAN;
    numbers.clocks.refused = -1; /* none are set */
    return numbers;
}

/* Of an H100 that trains as the example does. */
static struct erg_rank_numbers of_gpu(void)
{
    struct erg_rank_numbers numbers = unknown();
    numbers.energy = ERG_RANK_ENERGY_OWN;
    numbers.is_gpu = 1;
    numbers.measured_s = 1.314;
    numbers.energy_j = 0.0275 * 16363;
    numbers.uncertainty_j = 0.0002 * 16363;
    numbers.power_w = 684;
    numbers.clock_mhz = 1665;
    numbers.temperature_c = 64;
    numbers.throttled_power_s = 0.4;
    numbers.throttled_thermal_s = 0.001;
    numbers.peak_flops = 989e12;
    numbers.memory_bytes = 61.2 * 0x1p30;
    return numbers;
}

static const struct erg_train_step a_step = {.step = 1000,
                                             .updates = 999,
                                             .targets = 16363,
                                             .tokens = 16363000,
                                             .loss = 2.8131,
                                             .gradient_norm = 0.412,
                                             .learning_rate = 2.98e-4};

/* A window of one step of 657 ms. */
static void make_line(struct erg_run_line *line, struct erg_run_log_entry *entry,
                      const struct erg_job *job, const struct erg_rank_numbers *ranks, size_t count)
{
    const struct erg_run_log log = {.about = {.job = job, .ranks = count},
                                    .spent_s = 0.657,
                                    .shortest_s = 0.657,
                                    .longest_s = 0.657,
                                    .in_window = 1,
                                    .last_tokens = a_step.tokens - 16363};
    entry->step = &a_step;
    entry->ranks = ranks;
    erg_run_line_make(line, &log, entry, 1.7e9);
}

static void check_text(const struct erg_run_line *line, const char *expected)
{
    struct erg_text text = {0};
    erg_run_line_text(&text, line, 5000);
    assert_string_equal(text.data, expected);
    erg_text_release(&text);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is no number", key);
    return json_number_value(value);
}

static double item(const json_t *object, const char *key, size_t index)
{
    const json_t *value = json_array_get(json_object_get(object, key), index);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void lines_for_people(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_rank_numbers numbers = of_gpu();
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    make_line(&line, &entry, job, &numbers, 1);
    check_text(&line, "step 1000/5000  loss 2.8131  norm 0.412  lr 2.98e-04  657 ms  "
                      "24,906 tok/s/GPU  53.9 % MFU  61.2 GiB  684 W  0.0275 ± 0.0002 J/tok");
    double validation = 2.9012;
    numbers.exposed_s[ERG_EXPOSED_TENSOR] = 0.0021;
    numbers.exposed_s[ERG_EXPOSED_GRADIENTS] = 0.001;
    numbers.exposed_s[ERG_EXPOSED_DATA] = 0.5; /* no communication */
    entry.validation_loss = &validation;
    make_line(&line, &entry, job, &numbers, 1);
    check_text(&line, "step 1000/5000  loss 2.8131  validation 2.9012  norm 0.412  lr 2.98e-04  "
                      "657 ms  24,906 tok/s/GPU  53.9 % MFU  61.2 GiB  684 W  "
                      "0.0275 ± 0.0002 J/tok  comm 3.1 ms");
    /* What is not known is left out, and energy that is not known to 100 %. */
    entry.validation_loss = NULL;
    numbers = unknown();
    make_line(&line, &entry, job, &numbers, 1);
    check_text(&line, "step 1000/5000  loss 2.8131  norm 0.412  lr 2.98e-04  657 ms  24,906 tok/s");
    numbers = of_gpu();
    numbers.uncertainty_j = numbers.energy_j;
    numbers.peak_flops = numbers.power_w = NAN;
    numbers.memory_bytes = 0x1.8p20;
    make_line(&line, &entry, job, &numbers, 1);
    check_text(&line, "step 1000/5000  loss 2.8131  norm 0.412  lr 2.98e-04  657 ms  "
                      "24,906 tok/s/GPU  1.5 MiB");
    erg_job_free(job);
}

/* Of a run without a plan. */
static const struct erg_run_about *about_of(const struct erg_job *job)
{
    static struct erg_run_about about;
    about = (struct erg_run_about){
        .job = job, .expected = {.time_s = NAN, .energy_j = NAN, .step_s = NAN, .step_j = NAN}};
    return &about;
}

static void lines_of_plans(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_rank_numbers numbers = of_gpu();
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    const struct erg_run_about about = {
        .job = job, .expected = {.time_s = 0.25, .energy_j = 90, .step_s = 0.375, .step_j = 100}};
    numbers.clocks = (struct erg_clock_numbers){.asked = 16,
                                                .set = 5,
                                                .skipped = 10,
                                                .superseded = 1,
                                                .call_mean_s = 2e-5,
                                                .late_mean_s = 3e-4};
    make_line(&line, &entry, job, &numbers, 1);
    json_t *object = erg_run_line_json(&line, &about);
    assert_near(number(object, "planned_ms"), 250, 1e-9);
    assert_near(number(object, "planned_j"), 90, 0);
    assert_near(number(object, "planned_step_ms"), 375, 0);
    assert_near(number(object, "planned_step_j"), 100, 0);
    const json_t *clocks = json_object_get(object, "clocks");
    assert_near(number(clocks, "asked"), 16, 0);
    assert_near(number(clocks, "superseded"), 1, 0);
    assert_near(number(clocks, "call_ms"), 0.02, 1e-12);
    assert_near(number(clocks, "late_ms"), 0.3, 1e-12);
    assert_true(json_is_false(json_object_get(clocks, "refused")));
    json_decref(object);
    erg_job_free(job);
}

static void lines_of_json(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_rank_numbers numbers = of_gpu();
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    numbers.exposed_s[ERG_EXPOSED_PIPELINE] = 0.004;
    numbers.bubble_s = 0.01;
    numbers.memory_outside_bytes = 1e9;
    make_line(&line, &entry, job, &numbers, 1);
    json_t *object = erg_run_line_json(&line, about_of(job));
    assert_near(number(object, "schema_version"), 1, 0);
    assert_near(number(object, "step"), 1000, 0);
    assert_near(number(object, "updates"), 999, 0);
    assert_near(number(object, "samples"), 3994, 0); /* 16363000 / 4096 */
    assert_near(number(object, "tokens"), 16363000, 0);
    assert_near(number(object, "time_unix_s"), 1.7e9, 0);
    assert_near(number(object, "window_steps"), 1, 0);
    assert_near(number(json_object_get(object, "step_ms"), "max"), 657, 1e-9);
    assert_close(number(object, "tokens_per_s"), 16363 / 0.657, 1e-12);
    assert_close(number(object, "tokens_per_s_gpu"), 16363 / 0.657, 1e-12);
    /* Llama 3.2 3B: 28 layers, h 3072, 24 heads and 8 groups of 128, F 8192, 128256 words. */
    double layer = 3072. * (24 + 2 * 8) * 128 + 3072. * 3072 + 3. * 3072 * 8192;
    double flops = 3 * (2 * 28 * layer + 2. * 28 * 4096 * 24 * 128 + 2. * 3072 * 128256);
    assert_close(number(object, "mfu"), 16363 / 0.657 * flops / 989e12, 1e-12);
    assert_near(number(object, "mfu"), 0.539, 5e-4);
    assert_close(number(object, "hfu"), number(object, "mfu"), 1e-12);
    assert_near(number(object, "memory_bytes"), floor(61.2 * 0x1p30), 0);
    assert_near(number(object, "memory_outside_bytes"), 1e9, 0);
    assert_near(item(object, "power_w", 0), 684, 0);
    assert_near(item(object, "clock_mhz", 0), 1665, 0);
    assert_near(item(object, "temperature_c", 0), 64, 0);
    assert_close(number(object, "energy_j"), 449.9825, 1e-12);
    assert_close(number(object, "energy_uncertainty_j"), 3.2726, 1e-12);
    assert_close(number(object, "j_per_token"), 0.0275, 1e-12);
    assert_close(number(object, "j_per_token_uncertainty"), 0.0002, 1e-12);
    const json_t *exposed = json_object_get(object, "exposed_ms");
    assert_int_equal(json_object_size(exposed), 7);
    assert_close(number(exposed, "pipeline"), 4, 1e-12);
    assert_true(json_is_null(json_object_get(exposed, "tensor")));
    assert_close(number(object, "bubble_ms"), 10, 1e-12);
    /* The power cap for a third of the time; heat for less than a hundredth is no reason. */
    const json_t *reasons = json_array_get(json_object_get(object, "throttle_reasons"), 0);
    assert_int_equal(json_array_size(reasons), 1);
    assert_string_equal(json_string_value(json_array_get(reasons, 0)), "power");
    assert_null(json_object_get(object, "validation_loss"));
    json_decref(object);
    erg_job_free(job);
}

static void unknown_is_null(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokens_per_s_gpu",
                                       "mfu",
                                       "hfu",
                                       "memory_bytes",
                                       "memory_outside_bytes",
                                       "energy_j",
                                       "energy_uncertainty_j",
                                       "j_per_token",
                                       "bubble_ms",
                                       "planned_ms",
                                       "planned_j",
                                       "planned_step_ms",
                                       "planned_step_j",
                                       "j_per_token_uncertainty"};
    static const char *const arrays[] = {"power_w", "clock_mhz", "temperature_c",
                                         "throttle_reasons"};
    struct erg_job *job = load_job("");
    struct erg_rank_numbers numbers = unknown();
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    make_line(&line, &entry, job, &numbers, 1);
    json_t *object = erg_run_line_json(&line, about_of(job));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_is_null(json_object_get(object, keys[i])))
            fail_msg("%s is not null", keys[i]);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        assert_true(json_is_null(json_array_get(json_object_get(object, arrays[i]), 0)));
    assert_close(number(object, "tokens_per_s"), 16363 / 0.657, 1e-12);
    json_decref(object);
    erg_job_free(job);
}

/* Energies and their uncertainties are added up, and known if every rank's is. */
static void ranks_together(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_rank_numbers ranks[2] = {of_gpu(), of_gpu()};
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    ranks[1].energy_j = 100;
    ranks[1].uncertainty_j = 5;
    ranks[1].power_w = 616;
    ranks[1].memory_bytes = 70e9;
    ranks[1].exposed_s[ERG_EXPOSED_TENSOR] = 0.002;
    make_line(&line, &entry, job, ranks, 2);
    assert_close(line.energy_j, 549.9825, 1e-12);
    assert_close(line.uncertainty_j, 8.2726, 1e-12);
    assert_close(line.j_per_token, 549.9825 / 16363, 1e-12);
    assert_close(line.tokens_per_s_gpu, 16363 / 0.657 / 2, 1e-12);
    assert_near(line.mfu, 0.539 / 2, 5e-4);
    assert_near(line.memory_bytes, 70e9, 0);
    assert_near(line.power_w, 650, 0);
    assert_near(line.exposed_s[ERG_EXPOSED_TENSOR], 0.002, 0);
    json_t *object = erg_run_line_json(&line, about_of(job));
    assert_int_equal(json_array_size(json_object_get(object, "power_w")), 2);
    assert_near(item(object, "power_w", 1), 616, 0);
    json_decref(object);

    ranks[1].energy = ERG_RANK_ENERGY_ELSEWHERE;
    ranks[1].energy_j = NAN;
    make_line(&line, &entry, job, ranks, 2);
    assert_close(line.energy_j, 449.9825, 1e-12);
    ranks[1].energy = ERG_RANK_ENERGY_UNKNOWN;
    ranks[1].peak_flops = NAN;
    make_line(&line, &entry, job, ranks, 2);
    assert_true(isnan(line.energy_j) && isnan(line.uncertainty_j) && isnan(line.j_per_token));
    assert_true(isnan(line.mfu));
    erg_job_free(job);
}

/* Full recomputation runs the layers' forward once more, and not the head's. */
static void recomputation_counts_in_hfu_alone(void **state)
{
    (void)state;
    struct erg_job *job = load_job("recompute: full\n");
    struct erg_rank_numbers numbers = of_gpu();
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    make_line(&line, &entry, job, &numbers, 1);
    double layers = erg_time_flops_per_token(job->model, 4096) / 3 - 2. * 3072 * 128256;
    double again = layers / erg_time_flops_per_token(job->model, 4096);
    assert_close(line.hfu / line.mfu, 1 + again, 1e-9);
    assert_near(again, 0.3, 0.04);
    erg_job_free(job);
}

/* ---- event files ---- */

static void event_records(void **state)
{
    (void)state;
    static const unsigned char first[] = {
        0x18, 0,    0,    0,    0,    0,    0,    0,    0xa3, 0x7f, 0x4b, 0x22, 0x09, 0,
        0,    0,    0x40, 0xfc, 0x54, 0xd9, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e,
        0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0xec, 0xed, 0x8f, 0x9d};
    struct erg_text records = {0};
    erg_event_add_version(&records, 1.7e9);
    assert_int_equal(records.count, sizeof first);
    assert_memory_equal(records.data, first, sizeof first);
    erg_text_release(&records);
}

/* A loss falls and shakes; what is far above it is noticed, once there are steps to compare with.
 */
static void jumps_of_the_loss_are_noticed(void **state)
{
    (void)state;
    struct erg_loss_watch watch = {0};
    double losses[200], mean, sum = 0, squares = 0;
    assert_near(erg_loss_watch_add(&watch, 50, &mean), 0, 0);
    for (int i = 0; i < 200; i++) {
        losses[i] = i < 199 ? 5 - 0.005 * i + 0.1 * (i % 7) : 0;
        assert_near(erg_loss_watch_add(&watch, losses[i], &mean), 0, 0);
    }
    assert_near(erg_loss_watch_add(&watch, NAN, &mean), 0, 0);
    double above = erg_loss_watch_add(&watch, 8, &mean);
    for (int i = 200 - ERG_LOSS_WATCH_STEPS; i < 200; i++) {
        sum += losses[i];
        squares += losses[i] * losses[i];
    }
    assert_near(mean, sum / ERG_LOSS_WATCH_STEPS, 1e-9);
    const double deviation =
        sqrt((squares - sum * sum / ERG_LOSS_WATCH_STEPS) / (ERG_LOSS_WATCH_STEPS - 1));
    assert_true(above > 6);
    assert_near(above, (8 - mean) / deviation, 1e-6);
    struct erg_loss_watch still = {0};
    for (int i = 0; i < 200; i++)
        assert_near(erg_loss_watch_add(&still, 4, &mean), 0, 0);
}

/* Steps that wait for their tokens are noticed once, and not by what a single step does. */
static void waits_for_tokens_are_noticed(void **state)
{
    (void)state;
    struct erg_data_watch watch = {0};
    assert_near(erg_data_watch_add(&watch, 5, 6), 0, 0); /* nothing was read ahead for the first */
    for (int i = 0; i < 400; i++)
        assert_near(erg_data_watch_add(&watch, i % 50 ? 0.0001 : 0.004, 0.01), 0, 0);
    double share = 0;
    for (int i = 0; i < 200 && share <= 0; i++)
        share = erg_data_watch_add(&watch, 0.0005, 0.01);
    assert_near(share, 0.05, 1e-9);
    for (int i = 0; i < 400; i++)
        assert_near(erg_data_watch_add(&watch, 0.005, 0.01), 0, 0);
}

/* Of a run that goes on behind step 299: what older files say of 300 and later no longer holds. */
static void later_events_are_taken_back(void **state)
{
    (void)state;
    static const unsigned char start[] = {0x09, 0,    0,    0,    0x40, 0xfc, 0x54, 0xd9,
                                          0x41, 0x10, 0xac, 0x02, 0x3a, 0x02, 0x08, 0x01};
    struct erg_text records = {0};
    erg_event_add_start(&records, 1.7e9, 300);
    assert_int_equal(records.count, 12 + sizeof start + 4);
    assert_memory_equal(records.data + 12, start, sizeof start);
    erg_text_release(&records);
}

/* What could not be written is written with what comes later, each byte once. */
static void a_full_disk_loses_no_event(void **state)
{
    (void)state;
    struct erg_event_scalar loss = {"train/loss", 6.25};
    struct erg_event_file events;
    struct erg_text whole = {0};
    struct erg_error err;
    char *text;
    size_t length;
    assert_ok(erg_event_file_open(&events, folder, 1.7e9, 0, &err), &err);
    erg_event_add_version(&whole, 1.7e9);
    int real = events.file, full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    for (uint64_t step = 1; step <= 6; step++) {
        bool fits = step < 3 || step > 4;
        events.file = fits ? real : full;
        assert_int_equal(erg_event_file_write(&events, 1.7e9, step, &loss, 1, &err), fits ? 0 : -1);
        erg_event_add_scalars(&whole, 1.7e9, step, &loss, 1);
    }
    close(full);
    char *path = erg_xstrdup(events.path);
    assert_ok(erg_event_file_close(&events, &err), &err);
    assert_ok(erg_file_read(path, 0, &text, &length, &err), &err);
    assert_int_equal(length, whole.count);
    assert_memory_equal(text, whole.data, length);
    erg_text_release(&whole);
    free(text);
    free(path);
}

static void event_file_is_the_golden_one(void **state)
{
    (void)state;
    const char *path = shared_data("train/events.out.tfevents.1700000000.example.1.0");
    skip_without(path, "train/events.out.tfevents");
    struct erg_text records = {0};
    erg_event_add_version(&records, 1.7e9);
    erg_event_add_scalars(&records, 1700000001, 1,
                          (struct erg_event_scalar[]){
                              {"train/loss", 6.25}, {"speed/mfu", NAN}, {"power/gpu_w", 512.5}},
                          3);
    erg_event_add_scalars(&records, 1700000300, 300,
                          (struct erg_event_scalar[]){{"train/loss", 5.5}, {"power/gpu_w", 498}},
                          2);
    char *golden;
    size_t length;
    struct erg_error err;
    assert_ok(erg_file_read(path, 0, &golden, &length, &err), &err);
    assert_int_equal(records.count, length);
    assert_memory_equal(records.data, golden, length);
    free(golden);
    erg_text_release(&records);
}

static double scalar(const struct erg_event_scalar *scalars, size_t count, const char *tag)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(scalars[i].tag, tag) == 0)
            return scalars[i].value;
    fail_msg("there is no %s", tag);
    return 0;
}

static void scalars_of_a_line(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_rank_numbers numbers = of_gpu();
    struct erg_event_scalar scalars[ERG_RUN_SCALARS];
    struct erg_run_log_entry entry = {0};
    struct erg_run_line line;
    make_line(&line, &entry, job, &numbers, 1);
    size_t count = erg_run_line_scalars(&line, scalars);
    assert_near(scalar(scalars, count, "train/loss"), 2.8131, 0);
    assert_near(scalar(scalars, count, "train/gradient_norm"), 0.412, 0);
    assert_near(scalar(scalars, count, "train/learning_rate"), 2.98e-4, 0);
    assert_close(scalar(scalars, count, "speed/step_ms"), 657, 1e-12);
    assert_near(scalar(scalars, count, "speed/mfu"), 0.539, 5e-4);
    assert_near(scalar(scalars, count, "power/gpu_w"), 684, 0);
    assert_close(scalar(scalars, count, "power/j_per_token"), 0.0275, 1e-12);
    assert_true(isnan(scalar(scalars, count, "power/cpu_w")));
    assert_true(isnan(scalar(scalars, count, "validation/loss")));
    erg_job_free(job);
}

/* ---- the course of a run ---- */

static json_t *history_line(double step, bool validated)
{
    json_t *line =
        erg_json_pack("{s:f, s:f, s:f, s:f, s:i, s:{s:f}, s:[f, n, f], s:n}", "step", step,
                      "tokens", 100 * step, "loss", 10 / step, "energy_j", 2.5, "window_steps", 1,
                      "step_ms", "mean", 20., "power_w", 300., 200., "mfu");
    if (validated)
        json_object_set_new(line, "validation_loss", json_real(11 / step));
    return line;
}

static void long_runs_are_thinned(void **state)
{
    (void)state;
    enum { LINES = 20001 };
    struct erg_run_history history = {0};
    for (int i = 1; i <= LINES; i++) {
        json_t *line = history_line(i, i % 1000 == 777);
        erg_run_history_add(&history, line);
        json_decref(line);
    }
    json_t *columns = erg_run_history_columns(&history);
    const json_t *steps = json_object_get(columns, "step");
    size_t count = json_array_size(steps), validated = 0;
    assert_true(count > 1024 && count <= 2049);
    for (size_t i = 0; i < count; i++) {
        double step = json_number_value(json_array_get(steps, i));
        assert_true(i == 0 || step > item(columns, "step", i - 1));
        assert_near(item(columns, "tokens", i), 100 * step, 0);
        assert_near(item(columns, "time_s", i), 0.02 * step, 1e-6 * step);
        assert_near(item(columns, "power_w", i), 500, 0);
        assert_true(json_is_null(json_array_get(json_object_get(columns, "mfu"), i)));
        validated += json_is_number(json_array_get(json_object_get(columns, "validation_loss"), i));
    }
    assert_int_equal(validated, 20);
    assert_near(item(columns, "step", 0), 1, 0);
    assert_near(item(columns, "step", count - 1), LINES, 0);
    assert_near(history.energy_j, 2.5 * LINES, 1e-6);
    json_decref(columns);
    erg_run_history_release(&history);
}

/* ---- the folder of a run ---- */

static size_t event_files(const char *run)
{
    size_t count = 0;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    DIR *listing = opendir(run);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            char end[400];
            snprintf(end, sizeof end, ".%s.%ld.", host, (long)getpid());
            assert_non_null(strstr(entry->d_name, end));
            count++;
        }
    closedir(listing);
    return count;
}

/* Logs steps first … last, of 16384 tokens. */
static void log_steps(struct erg_run_log *log, uint64_t first, uint64_t last)
{
    struct erg_rank_numbers numbers = of_gpu();
    for (uint64_t i = first; i <= last; i++) {
        struct erg_text text = {0};
        struct erg_train_step step = a_step;
        step.step = step.updates = i;
        step.tokens = 16384 * i;
        bool due = erg_run_log_due(log->about.job->training, i, i == last);
        struct erg_run_log_entry entry = {
            .step = &step, .step_s = 0.5 + 0.01 * (double)i, .ranks = due ? &numbers : NULL};
        erg_run_log_step(log, &entry, &text);
        assert_true((text.count > 0) == due);
        if (due) { /* it counts to the run's own end */
            char begin[64];
            snprintf(begin, sizeof begin, "step %d/40  ", (int)i);
            assert_true(strncmp(text.data, begin, strlen(begin)) == 0);
        }
        erg_text_release(&text);
    }
}

static void check_lines(const char *path, const int *steps, size_t count)
{
    char *text, *rest;
    struct erg_error err;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    rest = text;
    for (size_t i = 0; i < count; i++) {
        const char *line = strtok_r(rest, "\n", &rest);
        assert_non_null(line);
        json_t *object = json_loads(line, 0, NULL);
        assert_near(number(object, "step"), steps[i], 0);
        json_decref(object);
    }
    assert_null(strtok_r(rest, "\n", &rest));
    free(text);
}

static void a_run_continues(void **state)
{
    (void)state;
    struct erg_job *job = load_job("");
    struct erg_run_log log;
    struct erg_error err;
    struct erg_run_about about = {.job = job,
                                  .folder = in_folder("run"),
                                  .device = "NVIDIA H100 80GB HBM3",
                                  .type = "bfloat16",
                                  .ranks = 1,
                                  .steps = 40};
    char metrics[200], page[200];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", about.folder);
    snprintf(page, sizeof page, "%s/report.html", about.folder);
    char *run = erg_xstrdup(about.folder);
    about.folder = run;
    assert_ok(erg_run_log_open(&log, &about, &err), &err);
    log_steps(&log, 1, 25);
    check_lines(metrics, (int[]){1, 2, 3, 10, 20, 25}, 6);
    json_t *document = erg_run_log_document(&log);
    json_t *columns = json_object_get(document, "columns");
    /* Windows of steps 4 to 10: 0.54 … 0.60 s. */
    assert_close(item(columns, "step_ms", 3), 570, 1e-9);
    assert_close(item(columns, "tokens_per_s", 3), 16384 / 0.57, 1e-9);
    assert_close(item(columns, "time_s", 5), 25 * 0.5 + 0.01 * 25 * 26 / 2, 1e-9);
    assert_close(item(columns, "j_per_token", 0), 449.9825 / 16384, 1e-9);
    assert_close(number(document, "energy_j"), 6 * 449.9825, 1e-9);
    assert_ok(erg_report_training_write(page, document, &err), &err);
    json_object_set_new(document, "schema_version", json_integer(2));
    assert_fails(erg_report_training_write(page, document, &err), &err,
                 "expected \"ergon.training\" of version 1");
    json_decref(document);
    assert_ok(erg_run_log_close(&log, &err), &err);
    assert_int_equal(event_files(about.folder), 1);

    /* Behind step 20: later lines go, a new event file begins, the course is whole. */
    about.step = 20;
    about.tokens = 20 * 16384;
    assert_ok(erg_run_log_open(&log, &about, &err), &err);
    check_lines(metrics, (int[]){1, 2, 3, 10, 20}, 5);
    assert_int_equal(event_files(about.folder), 2);
    log_steps(&log, 21, 30);
    check_lines(metrics, (int[]){1, 2, 3, 10, 20, 30}, 6);
    document = erg_run_log_document(&log);
    columns = json_object_get(document, "columns");
    assert_int_equal(json_array_size(json_object_get(columns, "step")), 6);
    assert_close(item(columns, "time_s", 5), 30 * 0.5 + 0.01 * 30 * 31 / 2, 1e-9);
    json_decref(document);
    assert_ok(erg_run_log_close(&log, &err), &err);

    about.step = 0;
    about.fresh = true;
    assert_fails(erg_run_log_open(&log, &about, &err), &err, "metrics.jsonl': this file exists");
    assert_ok(erg_run_log_close(&log, &err), &err);
    free(run);
    erg_job_free(job);
}

static void check_refused(const struct erg_run_about *about, const char *part)
{
    struct erg_run_log log;
    struct erg_error err;
    assert_fails(erg_run_log_open(&log, about, &err), &err, part);
    assert_ok(erg_run_log_close(&log, &err), &err);
}

/* What run.json says holds, also of a folder whose log somebody has removed. */
static void the_folder_of_another_run_is_refused(void **state)
{
    (void)state;
    struct erg_job *job = load_job(""), *other = load_job("");
    struct erg_run_log log;
    struct erg_error err;
    char *run = erg_xstrdup(in_folder("claimed"));
    struct erg_run_about about = {
        .job = job, .folder = run, .device = "host", .type = "float32", .ranks = 1, .steps = 9};
    other->layout.microbatches++; /* a step of more sequences */
    assert_ok(erg_run_log_open(&log, &about, &err), &err);
    assert_ok(erg_run_log_close(&log, &err), &err);
    shell("rm @/claimed/metrics.jsonl");
    about.job = other;
    check_refused(&about, "/claimed/run.json': this file exists, of another run");
    about.step = 4;
    check_refused(&about, "/claimed/run.json': this file exists, of another run");
    shell("test ! -e @/claimed/metrics.jsonl");
    /* The same run goes on without its log, but does not begin anew beside its checkpoint. */
    about.job = job;
    assert_ok(erg_run_log_open(&log, &about, &err), &err);
    assert_ok(erg_run_log_close(&log, &err), &err);
    shell("cd @/claimed && rm metrics.jsonl && touch latest");
    about.step = 0;
    about.fresh = true;
    check_refused(&about, "/claimed/latest': this file exists");
    /* A folder without run.json is of nobody, unless it has what a run would replace. */
    shell("rm @/claimed/run.json");
    about.fresh = false;
    check_refused(&about, "/claimed/latest': this file exists");
    shell("rm @/claimed/latest");
    assert_ok(erg_run_log_open(&log, &about, &err), &err);
    assert_ok(erg_run_log_close(&log, &err), &err);
    free(run);
    erg_job_free(job);
    erg_job_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_for_people),
        cmocka_unit_test(lines_of_json),
        cmocka_unit_test(lines_of_plans),
        cmocka_unit_test(unknown_is_null),
        cmocka_unit_test(ranks_together),
        cmocka_unit_test(recomputation_counts_in_hfu_alone),
        cmocka_unit_test(event_records),
        cmocka_unit_test(jumps_of_the_loss_are_noticed),
        cmocka_unit_test(waits_for_tokens_are_noticed),
        cmocka_unit_test(later_events_are_taken_back),
        cmocka_unit_test(a_full_disk_loses_no_event),
        cmocka_unit_test(event_file_is_the_golden_one),
        cmocka_unit_test(scalars_of_a_line),
        cmocka_unit_test(long_runs_are_thinned),
        cmocka_unit_test(a_run_continues),
        cmocka_unit_test(the_folder_of_another_run_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
