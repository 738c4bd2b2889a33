/* The doctor's findings, and its checks of the machine itself: CPUs, permissions, disk, data. */
#include "observe/doctor.h"

#include "io/file.h"
#include "observe/doctor_internal.h"
#include "telemetry/rapl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *erg_finding_state_name(enum erg_finding_state state)
{
    static const char *const names[] = {"ok", "limited", "missing"};
    return names[state];
}

void erg_doctor_note(struct erg_doctor *doctor, enum erg_finding_state state, int gpu,
                     const char *subject, const char *advice, const char *fact, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, fact);
    vsnprintf(text, sizeof text, fact, arguments);
    va_end(arguments);
    ERG_PUSH(doctor, items,
             (struct erg_finding){.state = state,
                                  .gpu = gpu,
                                  .subject = subject,
                                  .fact = erg_arena_strdup(&doctor->arena, text),
                                  .advice = advice});
}

void erg_doctor_release(struct erg_doctor *doctor)
{
    erg_arena_release(&doctor->arena);
    free(doctor->items);
    free(doctor->gpus);
    *doctor = (struct erg_doctor){0};
}

static void examine_cpu(struct erg_doctor *doctor)
{
    struct erg_rapl *rapl;
    struct erg_rapl_reading reading;
    struct erg_error err;
    if (erg_rapl_open(&rapl, NULL, &err) != 0) {
        erg_doctor_note(doctor, ERG_FINDING_MISSING, -1, "CPU energy",
                        "GPUs are measured without it; run as root, or ask the administrator for "
                        "read access to the energy_uj files of powercap.",
                        "%s", err.message);
        return;
    }
    erg_rapl_read(rapl, &reading);
    erg_rapl_close(rapl);
    if (!reading.cpu_valid)
        erg_doctor_note(doctor, ERG_FINDING_MISSING, -1, "CPU energy",
                        "Ask the administrator to check the energy_uj and max_energy_range_uj "
                        "files of powercap.",
                        "not all CPU packages can be read, so their sum is unknown");
    else if (reading.dram_valid)
        erg_doctor_note(doctor, ERG_FINDING_OK, -1, "CPU energy", NULL,
                        "packages and their memory can be read");
    else
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, -1, "CPU energy",
                        "The energy of CPU packages is reported without that of their memory.",
                        "packages can be read, their memory has no counter");
}

/* Effective capabilities of this process; 0: unknown. */
static unsigned long long capabilities(void)
{
    char line[256];
    unsigned long long bits = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "CapEff: %llx", &bits) == 1)
            break;
    if (status)
        fclose(status);
    return bits;
}

static void examine_permissions(struct erg_doctor *doctor)
{
    enum { SYS_ADMIN = 21 }; /* CAP_SYS_ADMIN, which the driver requires */
    if (capabilities() >> SYS_ADMIN & 1)
        erg_doctor_note(
            doctor, ERG_FINDING_OK, -1, "clock control", NULL,
            "this process has CAP_SYS_ADMIN, so the driver should let it lock clocks (not tested)");
    else
        erg_doctor_note(
            doctor, ERG_FINDING_LIMITED, -1, "clock control",
            "Measurements work without it; run as root to set clocks.",
            "this process lacks CAP_SYS_ADMIN, so the driver will not let it lock clocks");
}

static void examine_disk(struct erg_doctor *doctor)
{
    struct statvfs info;
    bool known = statvfs(".", &info) == 0;
    double free_gb = known ? 1e-9 * (double)info.f_bavail * (double)info.f_frsize : 0;
    if (access(".", W_OK) != 0)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, -1, "disk",
                        "Choose another folder for results with the option --output.",
                        "the current folder is not writable");
    else if (!known)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, -1, "disk", NULL,
                        "the free space of the current folder cannot be determined");
    else if (free_gb < 1)
        erg_doctor_note(doctor, ERG_FINDING_LIMITED, -1, "disk",
                        "Free some space, or choose another folder with the option --output.",
                        "only %.3f GB are free on the disk of the current folder", free_gb);
    else
        erg_doctor_note(doctor, ERG_FINDING_OK, -1, "disk", NULL,
                        "%.0f GB are free on the disk of the current folder", free_gb);
}

static void examine_data(struct erg_doctor *doctor)
{
    struct erg_arena arena = {0};
    size_t count = 0;
    for (const char *const *name = erg_data_names("gpus", &arena); *name; name++)
        count++;
    erg_arena_release(&arena);
    if (count)
        erg_doctor_note(doctor, ERG_FINDING_OK, -1, "data files", NULL,
                        "descriptions of %zu kinds of GPU were found", count);
    else
        erg_doctor_note(doctor, ERG_FINDING_MISSING, -1, "data files",
                        "Install ergon completely, or set ERGON_DATA to its folder \"data\".",
                        "descriptions of GPUs, stacks and models were not found");
}

void erg_doctor_examine(struct erg_doctor *doctor, const char *select, double watch_s)
{
    *doctor = (struct erg_doctor){0};
    erg_doctor_gpus(doctor, select, watch_s);
    if (doctor->gpu_count)
        examine_permissions(doctor);
    examine_cpu(doctor);
    erg_doctor_libraries(doctor);
    erg_doctor_slurm(doctor);
    examine_disk(doctor);
    examine_data(doctor);
}
