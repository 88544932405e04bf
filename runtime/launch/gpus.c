#include "runtime/launch/gpus.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of PCI. AMD's larger accelerators are no displays. */
enum { VENDOR_AMD = 0x1002, VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03, CLASS_ACCELERATOR = 0x12 };

/* access() asks the device lists of control groups, too; open() would wake a sleeping GPU, which takes seconds. */
static bool may_open(const char *root, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/dev/%s", root, file);
    return !access(path, R_OK | W_OK);
}

static bool nvidia_is_usable(const char *root, const char *bus_id) {
    char text[512];
    int minor = -1;
    snprintf(text, sizeof text, "%s/proc/driver/nvidia/gpus/%s/information", root, bus_id);
    FILE *file = fopen(text, "re");
    if (!file) return false;
    while (minor < 0 && fgets(text, sizeof text, file))
        if (sscanf(text, "Device Minor: %d", &minor) != 1) minor = -1;
    fclose(file);
    snprintf(text, sizeof text, "nvidia%d", minor);
    return minor >= 0 && may_open(root, text);
}

static bool amd_is_usable(const char *root, const char *bus_id) {
    char text[512];
    bool is_usable = false;
    snprintf(text, sizeof text, "%s/sys/bus/pci/devices/%s/drm", root, bus_id);
    DIR *folder = opendir(text);
    if (!folder) return false;
    for (struct dirent *entry; !is_usable && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "renderD", strlen("renderD")) != 0) continue;
        snprintf(text, sizeof text, "dri/%s", entry->d_name);
        is_usable = may_open(root, text);
    }
    closedir(folder);
    return is_usable;
}

static bool is_usable(hwloc_obj_t device, unsigned vendor, const char *root) {
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    unsigned base_class = pci->class_id >> 8;
    char bus_id[32];
    if (pci->vendor_id != vendor || (base_class != CLASS_DISPLAY && base_class != CLASS_ACCELERATOR)) return false;
    snprintf(bus_id, sizeof bus_id, "%04x:%02x:%02x.%x", (unsigned)pci->domain, pci->bus, pci->dev, pci->func);
    return vendor == VENDOR_NVIDIA ? nvidia_is_usable(root, bus_id) : amd_is_usable(root, bus_id);
}

static uint64_t bus_order(hwloc_obj_t device) {
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    return (uint64_t)pci->domain << 24 | (uint64_t)pci->bus << 16 | (uint64_t)pci->dev << 8 | pci->func;
}

static void list_by_bus(hwloc_topology_t topology, unsigned vendor, const char *root, shd_gpus *gpus) {
    for (hwloc_obj_t device = NULL; (device = hwloc_get_next_pcidev(topology, device));) {
        if (!is_usable(device, vendor, root)) continue;
        if (gpus->count < SHD_GPUS_MAX)
            gpus->count++;
        else if (bus_order(gpus->devices[SHD_GPUS_MAX - 1]) < bus_order(device))
            continue;
        int32_t at = gpus->count - 1;
        for (; at > 0 && bus_order(gpus->devices[at - 1]) > bus_order(device); at--)
            gpus->devices[at] = gpus->devices[at - 1];
        gpus->devices[at] = device;
    }
}

/* CUDA numbers the fastest first unless told not to. */
static void doubt_mixed(shd_gpus *gpus) {
    const char *order = getenv("CUDA_DEVICE_ORDER");
    if (order && !strcmp(order, "PCI_BUS_ID")) return;
    for (int32_t i = 1; i < gpus->count; i++)
        if (gpus->devices[i]->attr->pcidev.device_id != gpus->devices[0]->attr->pcidev.device_id)
            snprintf(gpus->doubt, sizeof gpus->doubt, "they differ, and CUDA_DEVICE_ORDER is not PCI_BUS_ID");
}

/* Leaves the GPUs that the list has, in its order. As the vendors' libraries see it, one that is not there ends it. */
static void take_listed(shd_gpus *gpus, const char *variable) {
    const char *at = getenv(variable);
    const shd_gpus all = *gpus;
    if (!at) return;
    for (gpus->count = 0; isdigit((unsigned char)*at) && gpus->count < SHD_GPUS_MAX;) {
        char *end;
        unsigned long index = strtoul(at, &end, 10);
        if (index >= (unsigned long)all.count || (*end && *end != ',')) return;
        gpus->devices[gpus->count++] = all.devices[index];
        at = *end ? end + 1 : end;
    }
    if (strncmp(at, "GPU-", strlen("GPU-")) != 0 && strncmp(at, "MIG-", strlen("MIG-")) != 0) return;
    *gpus = all;
    snprintf(gpus->doubt, sizeof gpus->doubt, "%s does not have plain numbers", variable);
}

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value;
}

void shd_gpus_find(hwloc_topology_t topology, const char *root, shd_gpus *out) {
    *out = (shd_gpus){0};
    list_by_bus(topology, VENDOR_NVIDIA, root, out);
    if (out->count > 0) {
        doubt_mixed(out);
        take_listed(out, "CUDA_VISIBLE_DEVICES");
        return;
    }
    list_by_bus(topology, VENDOR_AMD, root, out);
    /* HIP's list counts what the layer below has left, and stands before CUDA's. */
    take_listed(out, "ROCR_VISIBLE_DEVICES");
    take_listed(out, is_set("HIP_VISIBLE_DEVICES") ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");
}
