/* Start, end and errors of NVML, and its list of devices. */
#include "library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../machine/self.h"
#include "../machine/visible.h"

static struct sim_machine machine;
static struct nvmlDevice_st handles[SIM_MAX_CARDS][1 + SIM_MAX_MIG];
static _Atomic int users; /* nvmlInit is counted */
static struct timespec scenario_time;
static char loaded[SIM_NAME]; /* the driver's version when this process first asked: that of its library */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const struct sim_machine *sim_nvml_machine(void)
{
    return &machine;
}

/* ---- the scenario, which may change while we run ---- */

static bool scenario_changed(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    bool changed =
        info.st_mtim.tv_sec != scenario_time.tv_sec || info.st_mtim.tv_nsec != scenario_time.tv_nsec;
    scenario_time = info.st_mtim;
    return changed;
}

/* Under the lock. A file that cannot be read leaves the machine as it was. */
static void refresh(void)
{
    char path[4096];
    struct sim_scenario fresh;
    snprintf(path, sizeof path, "%s/scenario", machine.directory);
    if (scenario_changed(path) && sim_scenario_read(path, &fresh))
        machine.scenario = fresh;
}

nvmlReturn_t sim_nvml_need(void)
{
    if (atomic_load(&users) == 0)
        return NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&lock);
    refresh();
    bool replaced = strcmp(loaded, machine.scenario.driver_version) != 0;
    pthread_mutex_unlock(&lock);
    return replaced ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_reach(int card)
{
    const struct timespec pause = {0, 10000000};
    for (;;) {
        nvmlReturn_t result = sim_nvml_need();
        if (result != NVML_SUCCESS || !machine.scenario.cards[card].stuck)
            return result;
        nanosleep(&pause, NULL);
    }
}

/* ---- devices ---- */

int sim_nvml_cards(int cards[SIM_MAX_CARDS])
{
    int count = 0;
    for (int i = 0; i < machine.scenario.card_count; i++)
        if (sim_card_present(&machine.scenario.cards[i]))
            cards[count++] = i;
    return count;
}

nvmlDevice_t sim_nvml_handle(int card, int mig)
{
    struct nvmlDevice_st *handle = &handles[card][mig + 1];
    *handle = (struct nvmlDevice_st){card, mig};
    return handle;
}

static bool is_handle(nvmlDevice_t handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)handles;
    return offset < sizeof handles && offset % sizeof *handle == 0;
}

nvmlReturn_t sim_nvml_view(nvmlDevice_t handle, struct sim_view *view)
{
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS)
        return result;
    if (!is_handle(handle) || handle->card >= machine.scenario.card_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = sim_nvml_reach(handle->card);
    if (result != NVML_SUCCESS)
        return result;
    const struct sim_card *card = &machine.scenario.cards[handle->card];
    if (card->lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (handle->mig >= card->mig_count)
        return NVML_ERROR_NOT_FOUND;
    int unit = handle->mig < 0 ? sim_unit_of_card(handle->card) : sim_unit_of_mig(handle->card, handle->mig);
    *view = (struct sim_view){
        .card = card,
        .mig = handle->mig < 0 ? NULL : &card->mig[handle->mig],
        .unit = &machine.state->units[unit],
        .card_index = handle->card,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_card(nvmlDevice_t handle, struct sim_view *view)
{
    nvmlReturn_t result = sim_nvml_view(handle, view);
    if (result == NVML_SUCCESS && view->mig != NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    return result;
}

nvmlReturn_t sim_nvml_text(char *out, unsigned int length, const char *text)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

/* ---- start and end ---- */

static bool start(void)
{
    const char *directory = getenv("SIMGPU_DIR");
    char path[4096];
    if (!sim_machine_open(&machine, directory))
        return false;
    snprintf(path, sizeof path, "%s/scenario", machine.directory);
    scenario_changed(path);
    if (*loaded == '\0')
        strcpy(loaded, machine.scenario.driver_version);
    return true;
}

SIM_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    bool started = atomic_load(&users) > 0 || start();
    if (started)
        atomic_fetch_add(&users, 1);
    pthread_mutex_unlock(&lock);
    return started ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

SIM_API nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

SIM_API nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

SIM_API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(&users) > 0 && atomic_fetch_sub(&users, 1) == 1)
        sim_machine_close(&machine);
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

SIM_API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
#define ERROR(name, value, text) \
    case name:                   \
        return text;
#include "../entries/nvml_errors.def"
#undef ERROR
    }
    return "Unknown Error";
}

/* ---- the system ---- */

SIM_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = sim_nvml_need();
    return result != NVML_SUCCESS ? result : sim_nvml_text(version, length, machine.scenario.driver_version);
}

SIM_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[SIM_NAME + 16];
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%d.%s", machine.scenario.cuda_version / 1000, machine.scenario.driver_version);
    nvmlReturn_t result = sim_nvml_need();
    return result != NVML_SUCCESS ? result : sim_nvml_text(version, length, text);
}

SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || version == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *version = machine.scenario.cuda_version;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

SIM_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[4096], text[1024] = "";
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || name == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "%s/%u/cmdline", sim_proc(), pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NVML_ERROR_NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, file); /* its first word ends with a NUL */
    fclose(file);
    return n == 0 ? NVML_ERROR_NOT_FOUND : sim_nvml_text(name, length, text);
}
