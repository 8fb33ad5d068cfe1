// SPDX-License-Identifier: Apache-2.0
// Browsers start no worker from a file: the search of a site that is read from the disk runs in a hidden frame.
if (location.protocol === "file:") {
    const frameOf = (worker, url) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.worker = worker;
        frame.srcdoc = `<script>
            postMessage = (data) => frameElement.worker.dispatchEvent(new MessageEvent("message", { data }));
            importScripts = () => {};
        </script><script src="${url}"></script>`;
        return frame;
    };
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = frameOf(this, url);
            this.scope = new Promise((ready) => (frame.onload = () => ready(frame.contentWindow)));
            document.body.append(frame);
        }
        async postMessage(data) {
            const scope = await this.scope;
            scope.dispatchEvent(new scope.MessageEvent("message", { data }));
        }
    };
}
