# The image holds one static binary, no shell and no libc: `make image` puts
# together what goes in, and builds it.
FROM scratch
# Directories of the image give their owner to the volumes mounted there.
COPY --chown=65532:65532 bin/image/ /
# A number, not a name: there is no /etc/passwd to look one up in, and an
# orchestrator's "must not run as root" can check it.
USER 65532:65532
VOLUME ["/data"]
EXPOSE 7400 7401 7402/tcp 7402/udp 7480
ENTRYPOINT ["/leasehold"]
CMD ["server", "--data-dir", "/data"]
