# The image holds one static binary, no shell and no libc. Build the binary
# first (`make build`): the context needs only bin/leasehold.
FROM scratch
COPY bin/leasehold /leasehold
# A number, not a name: there is no /etc/passwd to look one up in, and an
# orchestrator's "must not run as root" can check it.
USER 65532:65532
VOLUME ["/data"]
EXPOSE 7400 7401 7402/tcp 7402/udp 7480
ENTRYPOINT ["/leasehold"]
CMD ["server", "--data-dir", "/data"]
