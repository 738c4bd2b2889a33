/* Declarations shared by the files of amdgpu. Private to the room. */
#ifndef ERG_TELEMETRY_AMDGPU_INTERNAL_H
#define ERG_TELEMETRY_AMDGPU_INTERNAL_H

#include "telemetry/gpu_internal.h"

/* The reasons that slowed a GPU down, as a running sum of shares of time. */
enum amdgpu_limit { AMDGPU_LIMIT_POWER, AMDGPU_LIMIT_HEAT, AMDGPU_LIMITS };

/* The values of a table (gpu_metrics). Negative: not in the table. */
struct amdgpu_table {
    int64_t energy_mj;
    int64_t sent_bytes, received_bytes; /* over all XGMI links */
    int64_t reasons;                    /* bits of enum erg_clock_reason */
    int64_t ticks,
        limited_ticks[AMDGPU_LIMITS]; /* 32-bit counters; for each cause the sensor with most */
};

/* Decodes a table. False for an unknown revision and for a table that is too short. */
bool erg_amdgpu_table_decode(struct amdgpu_table *table, const unsigned char *bytes, size_t length);

/* One GPU. */
struct amdgpu_gpu {
    int device, hwmon; /* folders */
    int die, memory;   /* temperatures: sensor index from 0; -1: none */
    /* Time at a limit: the table's last ticks, their time, and their sum. */
    bool ticking;
    struct amdgpu_table last;
    int64_t last_ns;
    double limited_ns[AMDGPU_LIMITS];
};

enum { AMDGPU_TEMPERATURES = 3 };

/* The text of a small file in a folder, without the final newline. Returns 0 or errno. */
int erg_amdgpu_read_text(int folder, const char *name, char *text, size_t size);

/* The method `read` of the vendor (amdgpu_read.c). */
void erg_amdgpu_read(const struct erg_gpu_query *at);

#endif
