// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What an XDP program does, as a kernel module: it takes the frames of one interface before the network stack
// does, as generic XDP does, and sends them back. `workload.h` is written beside it.
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/timekeeping.h>

#define COUNTER
#define SUBPROGRAM static __always_inline

#include "workload.h"

#ifndef WORKING_SET_BYTES
#define WORKING_SET_BYTES sizeof(struct working_set)
#endif

static char interface[IFNAMSIZ];
module_param_string(interface, interface, sizeof(interface), 0444);

static struct net_device *device;
static __u8 memory[WORKING_SET_BYTES] __aligned(64);

static void run(struct sk_buff *skb) {
    __u64 result;

    skb_push(skb, ETH_HLEN);
    result = kernel((struct working_set *)memory, skb->data, skb->data + skb->len, 0);
    KEEP(result);
    swap_macs(skb->data);
    dev_queue_xmit(skb);
}

static rx_handler_result_t take(struct sk_buff **taken) {
    struct sk_buff *skb = skb_share_check(*taken, GFP_ATOMIC);

    if (skb)
        skb = skb_unshare(skb, GFP_ATOMIC);
    if (skb && !skb_linearize(skb))
        run(skb);
    else
        kfree_skb(skb);
    return RX_HANDLER_CONSUMED;
}

static int __init load_init(void) {
    int error;

    device = dev_get_by_name(current->nsproxy->net_ns, interface);
    if (!device)
        return -ENODEV;
    rtnl_lock();
    error = netdev_rx_handler_register(device, take, NULL);
    rtnl_unlock();
    if (error)
        dev_put(device);
    return error;
}

static void __exit load_exit(void) {
    rtnl_lock();
    netdev_rx_handler_unregister(device);
    rtnl_unlock();
    dev_put(device);
}

module_init(load_init);
module_exit(load_exit);
MODULE_DESCRIPTION("xdplab's workload as a module");
MODULE_LICENSE("Dual MIT/GPL");
