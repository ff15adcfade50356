/* Parses the scenario file. Unknown keys are ignored, so that an older driver reads a newer file. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void copy_text(char *to, const char *from)
{
    snprintf(to, SIM_NAME, "%s", from);
}

static uint64_t mib(const char *value)
{
    return strtoull(value, NULL, 10) * SIM_MIB;
}

/* GiB a second as bytes a microsecond. */
static uint64_t speed(const char *value)
{
    return (uint64_t)(strtod(value, NULL) * 1024 * (double)SIM_MIB / 1e6);
}

static void read_xids(struct sim_card *card, const char *value)
{
    card->xid_count = 0;
    while (*value != '\0' && card->xid_count < SIM_MAX_XIDS) {
        char *end;
        long xid = strtol(value, &end, 10);
        if (end == value)
            return;
        card->xids[card->xid_count++] = (int)xid;
        value = *end == ',' ? end + 1 : end;
    }
}

/* Reads a list of peers and how many links go there, such as 1:4,switch:2. */
static void read_nvlinks(struct sim_card *card, const char *value)
{
    card->nvlink_count = 0;
    while (value != NULL && *value != '\0') {
        int peer = strncmp(value, "switch", 6) == 0 ? SIM_NVSWITCH : atoi(value);
        const char *count = strchr(value, ':');
        bool known = peer >= 0 && peer <= SIM_NVSWITCH;
        for (int left = known && count != NULL ? atoi(count + 1) : 0; left > 0 && card->nvlink_count < SIM_MAX_NVLINKS; left--)
            card->nvlinks[card->nvlink_count++] = peer;
        value = strchr(value, ',');
        if (value != NULL)
            value++;
    }
}

static void read_mig_key(struct sim_mig *mig, const char *key, const char *value)
{
    if (strcmp(key, "profile") == 0) {
        copy_text(mig->profile, value);
        mig->slices = atoi(value);
    } else if (strcmp(key, "uuid") == 0) {
        copy_text(mig->uuid, value);
    } else if (strcmp(key, "memory_mib") == 0) {
        mig->memory = mib(value);
    } else if (strcmp(key, "gi") == 0) {
        mig->gi = atoi(value);
    } else if (strcmp(key, "ci") == 0) {
        mig->ci = atoi(value);
    } else if (strcmp(key, "gi_minor") == 0) {
        mig->gi_minor = atoi(value);
    } else if (strcmp(key, "ci_minor") == 0) {
        mig->ci_minor = atoi(value);
    }
}

static void read_mig(struct sim_card *card, const char *key, const char *value)
{
    char *rest;
    long index = strtol(key, &rest, 10);
    if (*rest != '.' || index < 0 || index >= SIM_MAX_MIG)
        return;
    if (index >= card->mig_count)
        card->mig_count = (int)index + 1;
    read_mig_key(&card->mig[index], rest + 1, value);
}

static bool read_card_text(struct sim_card *card, const char *key, const char *value)
{
    if (strcmp(key, "model") == 0)
        copy_text(card->model, value);
    else if (strcmp(key, "uuid") == 0)
        copy_text(card->uuid, value);
    else if (strcmp(key, "bus_id") == 0)
        copy_text(card->bus_id, value);
    else if (strcmp(key, "xids") == 0)
        read_xids(card, value);
    else if (strcmp(key, "pcie_path") == 0)
        snprintf(card->pcie_path, SIM_PATH, "%s", value);
    else if (strcmp(key, "nvlinks") == 0)
        read_nvlinks(card, value);
    else if (strncmp(key, "mig.", 4) == 0)
        read_mig(card, key + 4, value);
    else
        return false;
    return true;
}

static void read_card_number(struct sim_card *card, const char *key, const char *value)
{
    if (strcmp(key, "memory_mib") == 0)
        card->memory = mib(value);
    else if (strcmp(key, "reserved_mib") == 0)
        card->reserved = mib(value);
    else if (strcmp(key, "context_mib") == 0)
        card->context = mib(value);
    else if (strcmp(key, "green_mib") == 0)
        card->green = mib(value);
    else if (strcmp(key, "module_mib") == 0)
        card->module = mib(value);
    else if (strcmp(key, "copy_gib_s") == 0)
        card->copy_speed = speed(value);
    else if (strcmp(key, "memory_gib_s") == 0)
        card->memory_speed = speed(value);
    else if (strcmp(key, "switch_us") == 0)
        card->switch_ns = (uint64_t)(strtod(value, NULL) * 1000);
    else if (strcmp(key, "minor") == 0)
        card->minor = atoi(value);
    else if (strcmp(key, "numa_node") == 0)
        card->numa_node = atoi(value);
    else if (strcmp(key, "nvlinks_down") == 0)
        card->nvlinks_down = atoi(value);
    else if (strcmp(key, "temperature") == 0)
        card->temperature = atoi(value);
    else if (strcmp(key, "concurrent") == 0)
        card->concurrent = atoi(value) != 0;
    else if (strcmp(key, "lost") == 0)
        card->lost = atoi(value) != 0;
    else if (strcmp(key, "stuck") == 0)
        card->stuck = atoi(value) != 0;
    else if (strcmp(key, "ecc_errors") == 0)
        card->ecc_errors = atoi(value);
    else if (strcmp(key, "mig_enabled") == 0)
        card->mig_enabled = atoi(value) != 0;
}

static void read_card(struct sim_scenario *out, const char *key, const char *value)
{
    char *rest;
    long index = strtol(key, &rest, 10);
    if (*rest != '.' || index < 0 || index >= SIM_MAX_CARDS)
        return;
    if (index >= out->card_count)
        out->card_count = (int)index + 1;
    struct sim_card *card = &out->cards[index];
    if (!read_card_text(card, rest + 1, value))
        read_card_number(card, rest + 1, value);
}

static void read_key(struct sim_scenario *out, const char *key, const char *value)
{
    if (strncmp(key, "card.", 5) == 0)
        read_card(out, key + 5, value);
    else if (strcmp(key, "driver_version") == 0)
        copy_text(out->driver_version, value);
    else if (strcmp(key, "cuda_version") == 0)
        out->cuda_version = atoi(value);
}

/* Splits `key = value` in place; false for a blank line or a comment. */
static bool split(char *line, char **key, char **value)
{
    line[strcspn(line, "\r\n")] = '\0';
    line += strspn(line, " \t");
    char *equals = strchr(line, '=');
    if (*line == '#' || equals == NULL)
        return false;
    *value = equals + 1 + strspn(equals + 1, " \t");
    while (equals > line && (equals[-1] == ' ' || equals[-1] == '\t'))
        equals--;
    *equals = '\0';
    *key = line;
    return true;
}

bool sim_scenario_read(const char *path, struct sim_scenario *out)
{
    memset(out, 0, sizeof *out);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        fprintf(stderr, "simgpu: no scenario at %s\n", path);
        return false;
    }
    char line[512];
    char *key, *value;
    while (fgets(line, sizeof line, file) != NULL)
        if (split(line, &key, &value))
            read_key(out, key, value);
    fclose(file);
    if (out->cuda_version == 0) {
        fprintf(stderr, "simgpu: %s is no scenario: it names no cuda_version\n", path);
        return false;
    }
    return true;
}
