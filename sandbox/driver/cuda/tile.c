/* Memory mapped to parts of sparse and deferred arrays. What is mapped stays in use; the arrays' contents are not kept there. */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "physical.h"
#include "stream.h"

enum { SPARSE = 0x40, DEFERRED = 0x80, TILE_BYTES = 64 << 10, MAP = 1, UNMAP = 2, RESOURCE_ARRAY = 0, RESOURCE_MIPMAP = 1 };

/* One mapping, by where in the array it begins. */
struct sim_tile {
    unsigned int level, layer;
    uint64_t place[3];
    struct sim_physical *physical;
    struct sim_tile *next;
};

struct map_info {
    int resource_type;
    union {
        CUmipmappedArray mipmap;
        CUarray array;
    } resource;
    int subresource_type;
    union {
        struct {
            unsigned int level, layer, offset[3], extent[3];
        } tile;
        struct {
            unsigned int layer;
            unsigned long long offset, size;
        } tail;
    } where;
    int operation, handle_type;
    CUmemGenericAllocationHandle memory;
    unsigned long long offset;
    unsigned int devices, flags, reserved[2];
};
_Static_assert(sizeof(struct map_info) == 96, "ABI");

struct sparse {
    struct {
        unsigned int width, height, depth;
    } tile;
    unsigned int tail_level;
    unsigned long long tail_size;
    unsigned int flags, reserved[4];
};

static CUresult properties(struct sparse *out, const struct sim_array *array)
{
    if (out == NULL || (array->descriptor.flags & SPARSE) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned int side = 64;
    *out = (struct sparse){.tile = {(unsigned int)(TILE_BYTES / side / array->element), side, 1}, .tail_level = 1};
    return CUDA_SUCCESS;
}

SIM_API CUresult cuArrayGetSparseProperties(struct sparse *out, CUarray handle)
{
    SIM_NEED_INIT();
    const struct sim_array *array = sim_array_of(handle);
    return array == NULL ? CUDA_ERROR_INVALID_HANDLE : properties(out, array);
}

SIM_API CUresult cuMipmappedArrayGetSparseProperties(struct sparse *out, CUmipmappedArray handle)
{
    SIM_NEED_INIT();
    const struct sim_array *array = sim_mipmap_level(handle, 0);
    return array == NULL ? CUDA_ERROR_INVALID_HANDLE : properties(out, array);
}

/* ---- mapping ---- */

/* Under the lock of physical memory. */
static void end_tile(struct sim_tile *tile)
{
    sim_physical_drop(tile->physical);
    free(tile);
}

void sim_tiles_end(struct sim_tile *tiles)
{
    sim_physical_lock();
    while (tiles != NULL) {
        struct sim_tile *tile = tiles;
        tiles = tile->next;
        end_tile(tile);
    }
    sim_physical_unlock();
}

static struct sim_tile place_of(const struct map_info *info)
{
    struct sim_tile tile = {.level = info->where.tile.level, .layer = info->where.tile.layer};
    for (int i = 0; i < 3; i++)
        tile.place[i] = info->where.tile.offset[i];
    return tile;
}

static struct sim_tile **find(struct sim_array *array, const struct sim_tile *wanted)
{
    struct sim_tile **at = &array->tiles;
    while (*at != NULL && ((*at)->level != wanted->level || (*at)->layer != wanted->layer ||
                           memcmp((*at)->place, wanted->place, sizeof wanted->place) != 0))
        at = &(*at)->next;
    return at;
}

/* Under the lock. Mapping over a mapping takes its place. */
static CUresult change(struct sim_array *array, const struct map_info *info)
{
    struct sim_tile wanted = place_of(info);
    struct sim_tile **at = find(array, &wanted), *old = *at;
    struct sim_physical *memory = info->operation == MAP ? sim_physical_of(info->memory) : NULL;
    if (info->operation == MAP && (memory == NULL || info->offset >= memory->size))
        return CUDA_ERROR_INVALID_VALUE;
    if (old != NULL) {
        *at = old->next;
        end_tile(old);
    }
    if (memory == NULL)
        return CUDA_SUCCESS;
    struct sim_tile *tile = malloc(sizeof *tile);
    if (tile == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *tile = wanted;
    tile->physical = memory;
    tile->next = array->tiles;
    array->tiles = tile;
    memory->references++;
    return CUDA_SUCCESS;
}

static struct sim_array *array_of(const struct map_info *info)
{
    return info->resource_type == RESOURCE_ARRAY    ? sim_array_of(info->resource.array)
           : info->resource_type == RESOURCE_MIPMAP ? sim_mipmap_level(info->resource.mipmap, 0)
                                                    : NULL;
}

/* Maps at once: work that uses the array comes after the call either way. */
SIM_API CUresult cuMemMapArrayAsync(struct map_info *list, unsigned int count, CUstream handle)
{
    SIM_NEED_STREAM(handle, stream);
    if (list == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    sim_physical_lock();
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct sim_array *array = array_of(&list[i]);
        bool sound = array != NULL && (array->descriptor.flags & (SPARSE | DEFERRED)) != 0 &&
                     (list[i].operation == MAP || list[i].operation == UNMAP) && list[i].flags == 0;
        result = sound ? change(array, &list[i]) : CUDA_ERROR_INVALID_VALUE;
    }
    sim_physical_unlock();
    return result != CUDA_SUCCESS ? result : sim_stream_submit(stream, &(struct sim_op){.kind = SIM_OP_EMPTY});
}
