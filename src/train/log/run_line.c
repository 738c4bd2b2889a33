/* One line of a run's log. */
#include "train/log/run_line.h"

#include "io/json.h"
#include "layout/time/time.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- values over ranks ---- */

/* A number of a rank, by its offset in struct erg_rank_numbers. */
static double number_of(const struct erg_run_line *line, size_t rank, size_t offset)
{
    double value;
    memcpy(&value, (const char *)&line->entry->ranks[rank] + offset, sizeof value);
    return value;
}

/* The sum over all ranks; NaN: unknown for one of them. */
static double sum_of(const struct erg_run_line *line, size_t offset)
{
    double sum = 0;
    for (size_t i = 0; i < line->ranks; i++)
        sum += number_of(line, i, offset);
    return sum;
}

static double most_of(const struct erg_run_line *line, size_t offset)
{
    double most = NAN;
    for (size_t i = 0; i < line->ranks; i++)
        most = fmax(most, number_of(line, i, offset));
    return most;
}

static double known_mean_of(const struct erg_run_line *line, size_t offset)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < line->ranks; i++) {
        double value = number_of(line, i, offset);
        sum += isnan(value) ? 0 : value;
        count += !isnan(value);
    }
    return sum / count; /* NaN: no values */
}

static void add_energy(struct erg_run_line *line)
{
    line->energy_j = line->uncertainty_j = 0;
    for (size_t i = 0; i < line->ranks; i++) {
        const struct erg_rank_numbers *rank = &line->entry->ranks[i];
        if (rank->energy == ERG_RANK_ENERGY_ELSEWHERE)
            continue;
        bool known = rank->energy == ERG_RANK_ENERGY_OWN;
        line->energy_j += known ? rank->energy_j : (double)NAN;
        line->uncertainty_j += known ? rank->uncertainty_j : (double)NAN;
    }
    line->j_per_token = line->tokens ? line->energy_j / (double)line->tokens : (double)NAN;
    line->j_per_token_uncertainty = line->j_per_token * (line->uncertainty_j / line->energy_j);
}

/* FLOPs with those of recomputed layers over those without. The other modes repeat no product. */
static double recomputed(const struct erg_job *job)
{
    const struct erg_layout *layout = &job->layout;
    struct erg_model_flops forward =
        erg_model_forward_flops(job->model, 1, (double)layout->sequence);
    double layers = forward.linear + forward.attention / 2, again = 0;
    for (size_t x = 0; x < (size_t)(layout->pipeline * layout->virtual_stages); x++)
        if (erg_layout_recompute(layout, (long)x % layout->pipeline) == ERG_RECOMPUTE_FULL)
            again += (double)erg_job_chunk_layers(job, x) / (double)job->model->layers;
    return 1 + again * layers / (3 * (layers + forward.head));
}

static void add_speed(struct erg_run_line *line, const struct erg_job *job, double spent_s)
{
    double peak_flops = sum_of(line, offsetof(struct erg_rank_numbers, peak_flops));
    line->tokens_per_s = (double)line->tokens / spent_s;
    line->tokens_per_s_gpu = line->on_gpus ? line->tokens_per_s / (double)line->ranks : (double)NAN;
    line->mfu = erg_time_mfu(job->model, job->layout.sequence, line->tokens_per_s, peak_flops);
    line->hfu = line->mfu * recomputed(job);
}

void erg_run_line_make(struct erg_run_line *line, const struct erg_run_log *log,
                       const struct erg_run_log_entry *entry, double time_unix_s)
{
    *line = (struct erg_run_line){
        .entry = entry,
        .ranks = log->about.ranks,
        .on_gpus = true,
        .time_unix_s = time_unix_s,
        .step_s = log->spent_s / (double)log->in_window,
        .shortest_s = log->shortest_s,
        .longest_s = log->longest_s,
        .window_steps = log->in_window,
        .undisturbed_steps = log->undisturbed,
        .undisturbed_s = log->undisturbed_s / (double)log->undisturbed,
        .tokens = entry->step->tokens - log->last_tokens,
    };
    for (size_t i = 0; i < line->ranks; i++)
        line->on_gpus &= entry->ranks[i].is_gpu != 0;
    /* A pause between steps does not count for a step's time, but lowers the tokens per second. */
    add_speed(line, log->about.job, log->spent_s + log->paused_s);
    add_energy(line);
    line->memory_bytes = most_of(line, offsetof(struct erg_rank_numbers, memory_bytes));
    line->memory_outside_bytes =
        most_of(line, offsetof(struct erg_rank_numbers, memory_outside_bytes));
    line->power_w = known_mean_of(line, offsetof(struct erg_rank_numbers, power_w));
    line->bubble_s = known_mean_of(line, offsetof(struct erg_rank_numbers, bubble_s));
    for (size_t i = 0; i < ERG_EXPOSED_KINDS; i++)
        line->exposed_s[i] =
            known_mean_of(line, offsetof(struct erg_rank_numbers, exposed_s) + i * sizeof(double));
}

/* ---- JSON ---- */

static const char *const exposed_names[ERG_EXPOSED_KINDS] = {
    [ERG_EXPOSED_TENSOR] = "tensor",     [ERG_EXPOSED_CONTEXT] = "context",
    [ERG_EXPOSED_PIPELINE] = "pipeline", [ERG_EXPOSED_GRADIENTS] = "gradients",
    [ERG_EXPOSED_WEIGHTS] = "weights",   [ERG_EXPOSED_COPIES] = "copies",
    [ERG_EXPOSED_DATA] = "data",
};

static json_t *whole(double value)
{
    return isnan(value) ? json_null() : json_integer((json_int_t)value);
}

static json_t *array_of(const struct erg_run_line *line, size_t offset)
{
    json_t *array = json_array();
    for (size_t i = 0; i < line->ranks; i++)
        json_array_append_new(array, erg_json_number(number_of(line, i, offset)));
    return array;
}

/* For each rank the reasons that limited its clock for at least a hundredth of the time; null: not
 * known. */
static json_t *throttle_reasons(const struct erg_run_line *line)
{
    static const double least_share = 0.01;
    json_t *array = json_array();
    for (size_t i = 0; i < line->ranks; i++) {
        const struct erg_rank_numbers *rank = &line->entry->ranks[i];
        bool known = !isnan(rank->throttled_power_s) && !isnan(rank->throttled_thermal_s);
        json_t *reasons = known ? json_array() : json_null();
        if (known && rank->throttled_power_s >= least_share * rank->measured_s)
            json_array_append_new(reasons, erg_json_new_string("power"));
        if (known && rank->throttled_thermal_s >= least_share * rank->measured_s)
            json_array_append_new(reasons, erg_json_new_string("heat"));
        json_array_append_new(array, reasons);
    }
    return array;
}

static json_t *exposed(const struct erg_run_line *line)
{
    json_t *object = json_object();
    for (size_t i = 0; i < ERG_EXPOSED_KINDS; i++)
        json_object_set_new(object, exposed_names[i], erg_json_number(1e3 * line->exposed_s[i]));
    return object;
}

/* The clock of the first rank that sets clocks; null: none does. */
static json_t *clocks_of(const struct erg_run_line *line)
{
    size_t i = 0;
    while (i < line->ranks && line->entry->ranks[i].clocks.refused < 0)
        i++;
    if (i == line->ranks)
        return json_null();
    const struct erg_clock_numbers *clocks = &line->entry->ranks[i].clocks;
    return erg_json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:b}", "asked", (json_int_t)clocks->asked,
                         "set", (json_int_t)clocks->set, "skipped", (json_int_t)clocks->skipped,
                         "superseded", (json_int_t)clocks->superseded, "call_ms",
                         1e3 * clocks->call_mean_s, "late_ms", 1e3 * clocks->late_mean_s, "refused",
                         clocks->refused != 0);
}

json_t *erg_run_line_json(const struct erg_run_line *line, const struct erg_run_about *about)
{
    const struct erg_job *job = about->job;
    const struct erg_train_step *step = line->entry->step;
    json_t *object = erg_json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:b, s:b, s:I, s:{s:f, s:f, s:f}, "
        "s:{s:I, s:f}}",
        "schema_version", 1, "step", (json_int_t)step->step, "updates", (json_int_t)step->updates,
        "samples", (json_int_t)(step->tokens / (uint64_t)job->layout.sequence), "tokens",
        (json_int_t)step->tokens, "targets", (json_int_t)step->targets, "time_unix_s",
        line->time_unix_s, "loss", step->loss, "gradient_norm", step->gradient_norm,
        "learning_rate", step->learning_rate, "clipped", step->clipped, "skipped", step->skipped,
        "window_steps", (json_int_t)line->window_steps, "step_ms", "mean", 1e3 * line->step_s,
        "min", 1e3 * line->shortest_s, "max", 1e3 * line->longest_s, "undisturbed", "steps",
        (json_int_t)line->undisturbed_steps, "ms", 1e3 * line->undisturbed_s);
    json_t *rest = erg_json_pack(
        "{s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:f, s:f, "
        "s:f, s:f, s:f, s:o}",
        "tokens_per_s", line->tokens_per_s, "tokens_per_s_gpu", line->tokens_per_s_gpu, "mfu",
        line->mfu, "hfu", line->hfu, "memory_bytes", whole(line->memory_bytes),
        "memory_outside_bytes", whole(line->memory_outside_bytes), "power_w",
        array_of(line, offsetof(struct erg_rank_numbers, power_w)), "clock_mhz",
        array_of(line, offsetof(struct erg_rank_numbers, clock_mhz)), "temperature_c",
        array_of(line, offsetof(struct erg_rank_numbers, temperature_c)), "throttle_reasons",
        throttle_reasons(line), "energy_j", line->energy_j, "energy_uncertainty_j",
        line->uncertainty_j, "j_per_token", line->j_per_token, "j_per_token_uncertainty",
        line->j_per_token_uncertainty, "exposed_ms", exposed(line), "bubble_ms",
        1e3 * line->bubble_s, "planned_ms", 1e3 * about->expected.time_s, "planned_j",
        about->expected.energy_j, "planned_step_ms", 1e3 * about->expected.step_s, "planned_step_j",
        about->expected.step_j, "clocks", clocks_of(line));
    json_object_update(object, rest);
    json_decref(rest);
    if (line->entry->validation_loss)
        json_object_set_new(object, "validation_loss",
                            erg_json_number(*line->entry->validation_loss));
    if (line->entry->trials)
        json_object_set_new(object, "trials", json_deep_copy(line->entry->trials));
    return object;
}

/* ---- TensorBoard ---- */

size_t erg_run_line_scalars(const struct erg_run_line *line, struct erg_event_scalar *scalars)
{
    const struct erg_train_step *step = line->entry->step;
    const double *validation = line->entry->validation_loss;
    const struct erg_event_scalar all[] = {
        {"train/loss", step->loss},
        {"train/gradient_norm", step->gradient_norm},
        {"train/learning_rate", step->learning_rate},
        {"validation/loss", validation ? *validation : (double)NAN},
        {"speed/step_ms", 1e3 * line->step_s},
        {"speed/tokens_per_s", line->tokens_per_s},
        {"speed/mfu", line->mfu},
        {"power/gpu_w", line->on_gpus ? line->power_w : (double)NAN},
        {"power/cpu_w", line->on_gpus ? (double)NAN : line->power_w},
        {"power/j_per_token", line->j_per_token},
    };
    _Static_assert(sizeof all / sizeof *all <= ERG_RUN_SCALARS, "room");
    memcpy(scalars, all, sizeof all);
    return sizeof all / sizeof *all;
}

/* ---- for people ---- */

/* "24,906" */
static void add_grouped(struct erg_text *out, double value)
{
    char digits[32];
    int count = snprintf(digits, sizeof digits, "%.0f", value);
    for (int i = 0; i < count; i++) {
        bool comma = i > 0 && (count - i) % 3 == 0;
        erg_text_printf(out, "%s%c", comma ? "," : "", digits[i]);
    }
}

/*
 * Adds both, to the first digit of the uncertainty. A value with an uncertainty of 100 % or more is
 * not printed.
 */
static void add_j_per_token(struct erg_text *out, const struct erg_run_line *line)
{
    double value = line->j_per_token, uncertainty = line->j_per_token_uncertainty;
    if (!(uncertainty > 0 && uncertainty < value))
        return;
    int places = (int)fmin(fmax(-floor(log10(uncertainty)), 0), 9);
    erg_text_printf(out, "  %.*f ± %.*f J/tok", places, value, places, uncertainty);
}

/* Milliseconds with the digits that a step needs. */
static void add_ms(struct erg_text *out, double seconds)
{
    double ms = 1e3 * seconds;
    erg_text_printf(out, "  %.*f ms", ms < 10 ? 2 : ms < 100 ? 1 : 0, ms);
}

void erg_run_line_text(struct erg_text *out, const struct erg_run_line *line, uint64_t steps)
{
    const struct erg_train_step *step = line->entry->step;
    double exposed_s = 0; /* communication */
    bool small = line->memory_bytes < 0x1p30;
    for (size_t i = ERG_EXPOSED_TENSOR; i <= ERG_EXPOSED_WEIGHTS; i++)
        exposed_s += isnan(line->exposed_s[i]) ? 0 : line->exposed_s[i];
    erg_text_printf(out, "step %" PRIu64 "/%" PRIu64, step->step, steps);
    if (!isnan(step->loss))
        erg_text_printf(out, "  loss %.4f", step->loss);
    if (line->entry->validation_loss)
        erg_text_printf(out, "  validation %.4f", *line->entry->validation_loss);
    erg_text_printf(out, "  norm %.3f  lr %.2e", step->gradient_norm, step->learning_rate);
    add_ms(out, line->step_s);
    erg_text_add(out, "  ");
    add_grouped(out, line->on_gpus ? line->tokens_per_s_gpu : line->tokens_per_s);
    erg_text_add(out, line->on_gpus ? " tok/s/GPU" : " tok/s");
    if (!isnan(line->mfu))
        erg_text_printf(out, "  %.1f %% MFU", 100 * line->mfu);
    if (!isnan(line->memory_bytes))
        erg_text_printf(out, "  %.3g %s", line->memory_bytes / (small ? 0x1p20 : 0x1p30),
                        small ? "MiB" : "GiB");
    if (!isnan(line->power_w))
        erg_text_printf(out, "  %.0f W", line->power_w);
    add_j_per_token(out, line);
    if (exposed_s > 0)
        erg_text_printf(out, "  comm %.1f ms", 1e3 * exposed_s);
    if (step->skipped)
        erg_text_add(out, "  skipped");
}
