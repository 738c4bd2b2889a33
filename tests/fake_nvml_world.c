/*
 * The fake NVML's world: its script, and what its GPUs really do.
 */
#include "fake_nvml.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct fake_world fake_world;
atomic_bool fake_released;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double fake_now_s(void)
{
    return (double)(now_ns() - fake_world.start_ns) * 1e-9;
}

/* ---- what the GPUs do ---- */

/* Energy from time 0 within one course of power, W before the first point and after the last. */
static double course_energy(const struct fake_gpu *gpu, double at_s)
{
    double energy_j = 0, from_s = 0, from_w = gpu->power_w[0];
    for (size_t i = 0; i < gpu->points && from_s < at_s; i++) {
        double to_s = gpu->time_s[i], to_w = gpu->power_w[i];
        if (to_s > at_s) {
            to_w = from_w + (to_w - from_w) * (at_s - from_s) / (to_s - from_s);
            to_s = at_s;
        }
        energy_j += 0.5 * (from_w + to_w) * (to_s - from_s);
        from_s = to_s;
        from_w = to_w;
        while (i + 1 < gpu->points && gpu->time_s[i + 1] <= from_s)
            from_w = gpu->power_w[++i];
    }
    return at_s > from_s ? energy_j + from_w * (at_s - from_s) : energy_j;
}

/* By what is set now; outside of the points that of the nearest. */
static double followed_power(const struct fake_gpu *gpu)
{
    const double *at = gpu->follow_at, *power_w = gpu->follow_w;
    double x = gpu->follows_clock ? (gpu->locked_max_mhz ? gpu->locked_max_mhz : gpu->clock_mhz)
                                  : (gpu->set_limit_mw ? gpu->set_limit_mw * 1e-3 : gpu->limit_w);
    size_t i = 0;
    while (i < gpu->followed && at[i] < x)
        i++;
    if (i == 0 || i == gpu->followed)
        return power_w[i ? i - 1 : 0];
    return power_w[i - 1] + (power_w[i] - power_w[i - 1]) * (x - at[i - 1]) / (at[i] - at[i - 1]);
}

static void change_power(struct fake_gpu *gpu, double at_s, double power_w)
{
    size_t count = atomic_load(&gpu->changes);
    if (!gpu->followed || count == FAKE_CHANGES)
        return;
    gpu->change_s[count] = at_s;
    gpu->change_w[count] = power_w;
    atomic_store(&gpu->changes, count + 1);
}

void fake_follow(struct fake_gpu *gpu, double at_s)
{
    if (gpu->followed)
        change_power(gpu, at_s, followed_power(gpu));
}

EXPORT void fake_nvml_draw(unsigned gpu, double power_w)
{
    change_power(&fake_world.gpus[gpu], fake_now_s(), power_w);
}

static double followed_energy(const struct fake_gpu *gpu, double at_s)
{
    const size_t count = atomic_load(&gpu->changes);
    double energy_j = 0;
    for (size_t i = 0; i < count && gpu->change_s[i] < at_s; i++) {
        double to_s = i + 1 < count ? fmin(gpu->change_s[i + 1], at_s) : at_s;
        energy_j += gpu->change_w[i] * (to_s - gpu->change_s[i]);
    }
    return energy_j;
}

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;

static double done_j(const struct fake_work *work, double at_s)
{
    return work->more_w * fmax(0, fmin(at_s, work->to_s) - work->from_s);
}

/* Of what tests told. */
static double work_energy(const struct fake_gpu *gpu, double at_s)
{
    double energy_j = 0;
    pthread_mutex_lock(&work_lock);
    for (size_t i = gpu->work_count; i > 0 && i + FAKE_WORKS > gpu->work_count; i--) {
        const struct fake_work *work = &gpu->works[(i - 1) % FAKE_WORKS];
        energy_j = work->before_j + done_j(work, at_s);
        if (work->from_s <= at_s)
            break;
    }
    pthread_mutex_unlock(&work_lock);
    return energy_j;
}

EXPORT void fake_nvml_work(unsigned gpu, int64_t from_ns, int64_t to_ns, double more_w)
{
    struct fake_gpu *one = &fake_world.gpus[gpu];
    struct fake_work work = {1e-9 * (double)(from_ns - fake_world.start_ns),
                             1e-9 * (double)(to_ns - fake_world.start_ns), more_w, 0};
    pthread_mutex_lock(&work_lock);
    if (one->work_count > 0) {
        const struct fake_work *last = &one->works[(one->work_count - 1) % FAKE_WORKS];
        work.before_j = last->before_j + done_j(last, last->to_s);
    }
    one->works[one->work_count++ % FAKE_WORKS] = work;
    pthread_mutex_unlock(&work_lock);
}

double fake_energy_at(const struct fake_gpu *gpu, double at_s)
{
    const double more_j = at_s > 0 ? work_energy(gpu, at_s) : 0;
    if (gpu->followed)
        return followed_energy(gpu, at_s) + more_j;
    if (at_s <= 0)
        return gpu->power_w[0] * at_s;
    if (gpu->cycle_s <= 0)
        return course_energy(gpu, at_s) + more_j;
    double whole = floor(at_s / gpu->cycle_s);
    return whole * course_energy(gpu, gpu->cycle_s) +
           course_energy(gpu, at_s - whole * gpu->cycle_s) + more_j;
}

/* In [0, 1), a function of the GPU and the step alone. */
static double lateness(const struct fake_gpu *gpu, double step)
{
    uint64_t x = (uint64_t)(int64_t)step * UINT64_C(0x9e3779b97f4a7c15) + gpu->index;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

double fake_last_step_s(const struct fake_gpu *gpu, double at_s)
{
    double step = floor((at_s - gpu->phase_s) / gpu->period_s) + 1, step_s;
    do {
        step -= 1;
        step_s = gpu->phase_s + step * gpu->period_s + gpu->jitter_s * lateness(gpu, step);
    } while (step_s > at_s);
    return step_s;
}

uint64_t fake_reasons_at(const struct fake_gpu *gpu, double at_s)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < gpu->rule_count; i++)
        if (gpu->rules[i].kind == FAKE_REASONS && at_s >= gpu->rules[i].from_s &&
            at_s < gpu->rules[i].to_s)
            bits |= gpu->rules[i].bits;
    return bits;
}

double fake_reasons_time(const struct fake_gpu *gpu, uint64_t bits, double until_s)
{
    double time_s = 0;
    for (size_t i = 0; i < gpu->rule_count; i++)
        if (gpu->rules[i].kind == FAKE_REASONS && gpu->rules[i].bits & bits)
            time_s += fmax(0, fmin(until_s, gpu->rules[i].to_s) - gpu->rules[i].from_s);
    return time_s;
}

EXPORT double fake_nvml_energy_j(unsigned gpu, int64_t from_ns, int64_t to_ns)
{
    double from_s = (double)(from_ns - fake_world.start_ns) * 1e-9;
    double to_s = (double)(to_ns - fake_world.start_ns) * 1e-9;
    const struct fake_gpu *one = &fake_world.gpus[gpu];
    return fake_energy_at(one, to_s) - fake_energy_at(one, from_s);
}

EXPORT int64_t fake_nvml_start_ns(void)
{
    return fake_world.start_ns;
}

EXPORT void fake_nvml_release(void)
{
    atomic_store(&fake_released, true);
}

/* ---- the script ---- */

enum { WORDS = FAKE_POINTS + 8 };

static double number(char *const *words, size_t count, size_t i, double missing)
{
    return i < count ? strtod(words[i], NULL) : missing;
}

static bool add_rule(struct fake_gpu *gpu, struct fake_rule rule, const char *call)
{
    if (gpu->rule_count == FAKE_RULES)
        return false;
    snprintf(rule.call, sizeof rule.call, "%s", call);
    gpu->rules[gpu->rule_count++] = rule;
    return true;
}

static bool set_power(struct fake_gpu *gpu, char *const *words, size_t count)
{
    gpu->points = 0;
    for (size_t i = 1; i < count && gpu->points < FAKE_POINTS; i++) {
        if (sscanf(words[i], "%lf=%lf", &gpu->time_s[gpu->points], &gpu->power_w[gpu->points]) != 2)
            return false;
        gpu->points++;
    }
    return gpu->points > 0;
}

static bool set_follow(struct fake_gpu *gpu, char *const *words, size_t count)
{
    gpu->follows_clock = count > 1 && strcmp(words[1], "clock") == 0;
    if (count < 3 || count - 2 > FAKE_FOLLOWED ||
        (!gpu->follows_clock && strcmp(words[1], "limit") != 0))
        return false;
    for (size_t i = 2; i < count; i++)
        if (sscanf(words[i], "%lf=%lf", &gpu->follow_at[i - 2], &gpu->follow_w[i - 2]) != 2)
            return false;
    gpu->followed = count - 2;
    return true;
}

static bool set_nvlink(struct fake_gpu *gpu, char *const *words, size_t count)
{
    static const char *const ways[] = {"together", "each", "bytes", "none"};
    gpu->nvlink[0] = number(words, count, 1, 0);
    gpu->nvlink[1] = number(words, count, 2, 0);
    gpu->links = (unsigned)number(words, count, 3, FAKE_LINKS);
    for (int way = 0; way < 4; way++)
        if (count > 4 && strcmp(words[4], ways[way]) == 0) {
            gpu->link_way = way;
            return true;
        }
    return false;
}

/* Where a rule begins: at a time, or while a file is there. NAN: the path is too long. */
static double from_or_file(struct fake_rule *rule, char *const *words, size_t count, size_t i,
                           double otherwise)
{
    if (i >= count || (words[i][0] != '/' && strncmp(words[i], "./", 2) != 0))
        return number(words, count, i, otherwise);
    const char *script = words[i][0] == '.' ? getenv("ERGON_FAKE_NVML") : NULL;
    const char *slash = script ? strrchr(script, '/') : NULL;
    const int length =
        snprintf(rule->file, sizeof rule->file, "%.*s%s", slash ? (int)(slash + 1 - script) : 0,
                 slash ? script : "", words[i]);
    return length < (int)sizeof rule->file ? -INFINITY : (double)NAN;
}

/* Commands with a call or bits and times. */
static bool set_rule(struct fake_gpu *gpu, char *const *words, size_t count)
{
    struct fake_rule rule = {.to_s = INFINITY};
    const char *name = words[0];
    if (count < 3)
        return false;
    if (strcmp(name, "fail") == 0) {
        rule.kind = FAKE_FAIL;
        rule.result = (int)number(words, count, 2, 0);
        rule.from_s = from_or_file(&rule, words, count, 3, -INFINITY);
        rule.to_s = number(words, count, 4, INFINITY);
    } else if (strcmp(name, "type") == 0) {
        rule.kind = FAKE_TYPE;
        rule.result = (int)number(words, count, 2, 0);
    } else if (strcmp(name, "slow") == 0) {
        rule.kind = FAKE_SLOW;
        rule.duration_s = number(words, count, 2, 0);
    } else if (strcmp(name, "hang") == 0) {
        rule.kind = FAKE_HANG;
        rule.from_s = from_or_file(&rule, words, count, 2, 0);
        rule.duration_s = number(words, count, 3, 0);
    } else if (strcmp(name, "glitch") == 0 && count > 3) {
        rule.kind = FAKE_GLITCH;
        rule.from_s = number(words, count, 1, 0);
        rule.to_s = rule.from_s + number(words, count, 2, 0);
        rule.bits = strtoull(words[3], NULL, 10);
    } else if (strcmp(name, "reasons") == 0) {
        rule.kind = FAKE_REASONS;
        rule.bits = strtoull(words[1], NULL, 16);
        rule.from_s = number(words, count, 2, 0);
        rule.to_s = number(words, count, 3, INFINITY);
    } else {
        return false;
    }
    return !isnan(rule.from_s) && add_rule(gpu, rule, words[1]);
}

static bool command(struct fake_gpu *gpu, char *const *words, size_t count)
{
    const struct {
        const char *name;
        double *first, *second;
    } numbers[] = {
        {"counter", &gpu->period_s, &gpu->phase_s},
        {"jitter", &gpu->jitter_s, NULL},
        {"gain", &gpu->gain, NULL},
        {"window", &gpu->window_s, NULL},
        {"temperature", &gpu->temperature_c, &gpu->memory_temperature_c},
        {"clock", &gpu->clock_mhz, NULL},
        {"pcie", &gpu->pcie[0], &gpu->pcie[1]},
        {"limit", &gpu->limit_w, NULL},
        {"settle", &gpu->settle_s[0], &gpu->settle_s[1]},
        {"arbitrate", &gpu->arbitrate_mhz, NULL},
        {"lost", &gpu->lost_s, NULL},
        {"cycle", &gpu->cycle_s, NULL},
        {"restart", &gpu->restart_s, NULL},
    };
    const char *name = words[0];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].first = number(words, count, 1, 0);
            if (numbers[i].second)
                *numbers[i].second = number(words, count, 2, 0);
            return count > 1;
        }
    if (strcmp(name, "power") == 0)
        return set_power(gpu, words, count);
    if (strcmp(name, "follow") == 0)
        return set_follow(gpu, words, count);
    if (strcmp(name, "nvlink") == 0)
        return set_nvlink(gpu, words, count);
    if (strcmp(name, "place") == 0 || strcmp(name, "limits") == 0) {
        for (size_t i = 0; i < 3; i++)
            (name[0] == 'p' ? gpu->place : gpu->limits_w)[i] = number(words, count, i + 1, 0);
        return true;
    }
    if (strcmp(name, "xid") == 0) {
        gpu->xid = (int)number(words, count, 1, 0);
        gpu->xid_s = number(words, count, 2, 0);
        return true;
    }
    gpu->narrow |= strcmp(name, "narrow") == 0;
    gpu->module |= strcmp(name, "module") == 0;
    gpu->nolocks |= strcmp(name, "nolocks") == 0;
    gpu->stuck |= strcmp(name, "stuck") == 0;
    return count == 1 || set_rule(gpu, words, count);
}

/* "gpu I name TEXT..." or "gpu I uuid TEXT...": the rest of the line as it is. */
static bool set_text(const char *line)
{
    char which[16], what[16];
    int at = 0;
    if (sscanf(line, " gpu %15s %15s%n", which, what, &at) != 2 ||
        (strcmp(what, "name") != 0 && strcmp(what, "uuid") != 0))
        return false;
    at += line[at] == ' ';
    for (unsigned i = 0; i < fake_world.count; i++) {
        struct fake_gpu *gpu = &fake_world.gpus[i];
        if (strcmp(which, "*") == 0 || strtoul(which, NULL, 10) == i)
            snprintf(what[0] == 'n' ? gpu->name : gpu->uuid, sizeof gpu->name, "%s", line + at);
    }
    return true;
}

static bool run_line(char *line)
{
    char *words[WORDS], *rest = line, *word;
    size_t count = 0;
    if (set_text(line))
        return true;
    line[strcspn(line, "#")] = '\0';
    while (count < WORDS && (word = strtok_r(rest, " \t\r", &rest)) != NULL)
        words[count++] = word;
    if (count == 0)
        return true;
    if (strcmp(words[0], "gpus") == 0) {
        fake_world.count = (unsigned)number(words, count, 1, 0);
        return fake_world.count >= 1 && fake_world.count <= FAKE_GPUS;
    }
    if (strcmp(words[0], "tail") == 0 && count == 2) {
        snprintf(fake_world.tail, sizeof fake_world.tail, "%s", words[1]);
        return true;
    }
    if (strcmp(words[0], "log") == 0 && count == 2) {
        snprintf(fake_world.log, sizeof fake_world.log, "%s", words[1]);
        return true;
    }
    if (strcmp(words[0], "gpu") != 0 || count < 3)
        return false;
    for (unsigned i = 0; i < fake_world.count; i++)
        if ((strcmp(words[1], "*") == 0 || strtoul(words[1], NULL, 10) == i) &&
            !command(&fake_world.gpus[i], words + 2, count - 2))
            return false;
    return true;
}

EXPORT bool fake_nvml_script(const char *text)
{
    memset(&fake_world, 0, sizeof fake_world);
    atomic_store(&fake_released, false);
    fake_world.start_ns = now_ns();
    snprintf(fake_world.tail, sizeof fake_world.tail, "0123456789ab");
    for (unsigned i = 0; i < FAKE_GPUS; i++)
        fake_world.gpus[i] = (struct fake_gpu){
            .index = i,
            .name = "NVIDIA Fake H200",
            .place = {0, 0x1b + i, 0},
            .power_w = {100},
            .points = 1,
            .period_s = 0.1,
            .phase_s = 0.013 * i,
            .gain = 1,
            .temperature_c = 45,
            .memory_temperature_c = 50,
            .clock_mhz = 1980,
            .limit_w = 700,
            .limits_w = {200, 700, 700},
            .arbitrate_mhz = INFINITY,
            .links = FAKE_LINKS,
            .lost_s = INFINITY,
            .xid_s = INFINITY,
            .restart_s = INFINITY,
        };
    char *copy = strdup(text), *rest = copy, *line;
    bool good = copy != NULL;
    while (good && (line = strtok_r(rest, "\n", &rest)) != NULL)
        if (!run_line(line)) {
            fprintf(stderr, "fake NVML: wrong line beginning with \"%s\"\n", line);
            good = false;
        }
    free(copy);
    for (unsigned i = 0; i < fake_world.count; i++)
        fake_follow(&fake_world.gpus[i], 0);
    return good && fake_world.count > 0;
}
