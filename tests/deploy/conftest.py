from deploy_fixtures import (  # noqa: F401
    afxdp_user,
    cache,
    drop_object,
    lab,
    swap_workload,
    xdpgen,
    xdpload,
)
