/* Slurm's job of a process, by its control group. */
#include "launch/slurm_cgroup.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number at the end of `name`N, which must be all that is there; 0 else. */
static uint32_t number_behind(const char *text, size_t length, const char *name)
{
    char digits[12];
    long number;
    size_t before = strlen(name);
    if (length <= before || length > before + 10 || strncmp(text, name, before) != 0)
        return 0;
    snprintf(digits, sizeof digits, "%.*s", (int)(length - before), text + before);
    bool plain = strspn(digits, "0123456789") == length - before;
    return plain && erg_parse_long(digits, &number) && number <= UINT32_MAX ? (uint32_t)number : 0;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t behind = strlen(end);
    return length >= behind && strncmp(text + length - behind, end, behind) == 0;
}

/* The GPUs of one path of a control group. */
static uint32_t job_of_path(const char *path, bool second_version)
{
    bool after_scope = false;
    for (int depth = 0; *path; depth++) {
        path += strspn(path, "/");
        size_t length = strcspn(path, "/");
        uint32_t job = number_behind(path, length, "job_");
        if (second_version) {
            if (after_scope && job)
                return job;
            if (strncmp(path, "user", 4) == 0 || ends_with(path, length, ".service"))
                return 0;
            after_scope = ends_with(path, length, "slurmstepd.scope");
        } else if (depth == 0 ? strncmp(path, "slurm", 5) != 0
                              : depth == 1 && strncmp(path, "uid_", 4) != 0) {
            return 0;
        } else if (depth == 2) {
            return job;
        }
        path += length;
    }
    return 0;
}

uint32_t erg_slurm_job_of(const char *cgroup)
{
    char line[4096];
    while (*cgroup) {
        size_t length = strcspn(cgroup, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, cgroup);
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (second && length < sizeof line) {
            uint32_t job = job_of_path(second + 1, second == first + 1);
            if (job)
                return job;
        }
        cgroup += length + (cgroup[length] == '\n');
    }
    return 0;
}
