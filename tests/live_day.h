/*
 * Days of jobs on a mini cluster: what fake trainers logged of their steps, and what must hold of
 * it whatever happened. Times are real, in UTC.
 */
#ifndef ERGON_TESTS_LIVE_DAY_H
#define ERGON_TESTS_LIVE_DAY_H

#include "check.h"
#include "folder.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <time.h>

static inline double unix_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void sleep_until(double at_s)
{
    for (double left_s; (left_s = at_s - unix_s()) > 0;)
        nanosleep(&(struct timespec){(time_t)left_s, (long)(fmod(left_s, 1) * 1e9)}, NULL);
}

/* The wait status of a command of the shell with @ for the folder. */
__attribute__((format(printf, 1, 2))) static inline int shell_of(const char *format, ...)
{
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct erg_text line = with_folder(text);
    int status = system(line.data);
    erg_text_release(&line);
    return status;
}

/* ---- what the trainers logged ---- */

/* A stretch of time in which an incarnation of a job had a GPU, by its own log. */
struct stretch {
    char token[24], gpu[40];
    long incarnation;
    double from_s, until_s;
};

/* An incarnation, as its first rank logged it. */
struct life {
    char token[24];
    long incarnation;
    double from_s, until_s;
    double first, last; /* iterations; -1: it never trained */
    double saved;       /* the last that it committed; -1: none */
    double saved_s;
    bool leaves; /* by itself, not killed */
};

/* A line of power: from then on each of an incarnation's GPUs may draw that. */
struct watts {
    size_t life;
    double at_s, each_w;
};

struct steps {
    struct stretch stretches[6000];
    struct life lives[1500];
    struct watts watts[1500];
    size_t stretches_count, lives_count, watts_count;
};

static inline size_t find_life(struct steps *steps, const char *token, long incarnation,
                               double at_s)
{
    size_t k = 0;
    while (k < steps->lives_count && (strcmp(steps->lives[k].token, token) != 0 ||
                                      steps->lives[k].incarnation != incarnation))
        k++;
    assert_true(k < sizeof steps->lives / sizeof *steps->lives);
    if (k == steps->lives_count) {
        steps->lives[steps->lives_count++] = (struct life){.incarnation = incarnation,
                                                           .from_s = at_s,
                                                           .until_s = at_s,
                                                           .first = -1,
                                                           .last = -1,
                                                           .saved = -1};
        snprintf(steps->lives[k].token, sizeof steps->lives[k].token, "%s", token);
    }
    return k;
}

static inline void add_life(struct steps *steps, double at_s, const char *token, long incarnation,
                            const char *what, double iteration)
{
    const size_t at = find_life(steps, token, incarnation, at_s);
    struct life *life = &steps->lives[at];
    life->until_s = fmax(life->until_s, at_s);
    life->leaves |= strcmp(what, "leaves") == 0;
    if (strcmp(what, "step") == 0) {
        life->first = life->first < 0 ? iteration : life->first;
        life->last = iteration;
    } else if (strcmp(what, "saved") == 0) {
        life->saved = floor(iteration);
        life->saved_s = at_s;
    } else if (strncmp(what, "plan:", 5) == 0) {
        assert_true(steps->watts_count < sizeof steps->watts / sizeof *steps->watts);
        steps->watts[steps->watts_count++] = (struct watts){at, at_s, atof(what + 5)};
    }
}

static inline void add_stretch(struct steps *steps, double at_s, const char *token,
                               long incarnation, const char *gpu)
{
    size_t k = 0;
    while (k < steps->stretches_count && (steps->stretches[k].incarnation != incarnation ||
                                          strcmp(steps->stretches[k].token, token) != 0 ||
                                          strcmp(steps->stretches[k].gpu, gpu) != 0))
        k++;
    assert_true(k < sizeof steps->stretches / sizeof *steps->stretches);
    if (k == steps->stretches_count) {
        steps->stretches[steps->stretches_count++] =
            (struct stretch){.incarnation = incarnation, .from_s = at_s, .until_s = at_s};
        snprintf(steps->stretches[k].token, sizeof steps->stretches[k].token, "%s", token);
        snprintf(steps->stretches[k].gpu, sizeof steps->stretches[k].gpu, "%s", gpu);
    }
    steps->stretches[k].until_s = fmax(steps->stretches[k].until_s, at_s);
}

/* Of FOLDER/steps; valid until the next call. */
static inline struct steps *read_steps(void)
{
    static struct steps steps;
    steps.stretches_count = steps.lives_count = steps.watts_count = 0;
    FILE *file = fopen(in_folder("steps"), "r");
    char line[600], token[24], node[16], gpus[40], what[24];
    double at_s, iteration;
    long incarnation, rank;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(sscanf(line, "%lf %23s %ld %ld %15s %39s %23s %lf", &at_s, token,
                                &incarnation, &rank, node, gpus, what, &iteration),
                         8);
        if (rank == 0)
            add_life(&steps, at_s, token, incarnation, what, iteration);
        for (char *gpu = strtok(gpus, ","); gpu; gpu = strtok(NULL, ",")) {
            char name[60];
            snprintf(name, sizeof name, "%s:%s", node, gpu);
            add_stretch(&steps, at_s, token, incarnation, name);
        }
    }
    fclose(file);
    assert_true(steps.stretches_count > 0);
    return &steps;
}

static inline void check_pair(const struct life *x, const struct life *y)
{
    if (x->saved >= 0 && x->saved_s > y->from_s)
        fail_msg("job %s: incarnation %ld commits %.3f s after %ld began", x->token, x->incarnation,
                 x->saved_s - y->from_s, y->incarnation);
    if (y->first >= 0 && y->first < x->saved)
        fail_msg("job %s: incarnation %ld begins at %g, though %ld committed %g", x->token,
                 y->incarnation, y->first, x->incarnation, x->saved);
    if (y->first >= 0 && x->leaves && x->last > y->first + 1)
        fail_msg("job %s has %g iterations when incarnation %ld leaves, %g when %ld begins",
                 x->token, x->last, x->incarnation, y->first, y->incarnation);
}

/* No GPU has two jobs at a time; no incarnation commits after a later one began; no committed work
 * is lost, and of an incarnation that left by itself none. */
static inline void check_steps(const struct steps *steps)
{
    for (size_t a = 0; a < steps->stretches_count; a++)
        for (size_t b = a + 1; b < steps->stretches_count; b++) {
            const struct stretch *x = &steps->stretches[a], *y = &steps->stretches[b];
            if (strcmp(x->gpu, y->gpu) == 0 && strcmp(x->token, y->token) != 0 &&
                x->from_s < y->until_s && y->from_s < x->until_s)
                fail_msg("GPU %s has jobs %s and %s at a time", x->gpu, x->token, y->token);
        }
    for (size_t a = 0; a < steps->lives_count; a++)
        for (size_t b = 0; b < steps->lives_count; b++)
            if (strcmp(steps->lives[a].token, steps->lives[b].token) == 0 &&
                steps->lives[a].incarnation < steps->lives[b].incarnation)
                check_pair(&steps->lives[a], &steps->lives[b]);
}

#endif
